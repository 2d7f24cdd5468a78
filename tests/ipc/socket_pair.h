// A connected pair of sockets for tests, and a descriptor whose identity can be told.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/sys.h"

namespace bulkhead::ipc {

struct SocketPair {
  SocketPair() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(sys::SocketPair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    first.Reset(fds[0]);
    second.Reset(fds[1]);
  }
  // Small buffers make every larger write a short one.
  void Shrink() {
    const int size = 2048;
    for (const int fd : {first.get(), second.get()}) sys::SetSockOpt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
  }

  UniqueFd first;
  UniqueFd second;
};

inline UniqueFd Memfd() { return UniqueFd(sys::MemfdCreate("test", 0)); }

inline ino_t InodeOf(int fd) {
  struct stat info = {};
  EXPECT_EQ(sys::Fstat(fd, &info), 0);
  return info.st_ino;
}

}  // namespace bulkhead::ipc
