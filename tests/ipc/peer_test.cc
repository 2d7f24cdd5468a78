#include "ipc/peer.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/ipc/socket_pair.h"

namespace bulkhead::ipc {
namespace {

TEST(PeerCredentials, AreThoseOfTheProcessThatMadeTheConnection) {
  const SocketPair pair;
  const auto peer = ReadPeerCredentials(pair.first.get());
  ASSERT_TRUE(peer.ok());
  EXPECT_EQ(peer->pid, sys::GetPid());
  EXPECT_EQ(peer->uid, sys::GetEuid());
  EXPECT_EQ(peer->gid, sys::GetEgid());
  std::vector<gid_t> groups(static_cast<size_t>(getgroups(0, nullptr)));
  getgroups(static_cast<int>(groups.size()), groups.data());
  EXPECT_EQ(peer->groups, groups);
  EXPECT_TRUE(peer->InGroup(sys::GetEgid()));
  EXPECT_FALSE(peer->InGroup(4242424));
}

TEST(PeerCredentials, OfSomethingElseThanASocketAreAnError) {
  const UniqueFd file = Memfd();
  EXPECT_FALSE(ReadPeerCredentials(file.get()).ok());
}

}  // namespace
}  // namespace bulkhead::ipc
