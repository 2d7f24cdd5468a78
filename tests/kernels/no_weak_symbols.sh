#!/usr/bin/env bash
# usage: no_weak_symbols.sh ARCHIVE MEMBER...: fails where a member of the archive is missing or holds a weak symbol.
set -euo pipefail

archive=$1
shift
for member in "$@"; do
  ar t "$archive" | grep -qx "$member" || { echo "$archive has no $member"; exit 1; }
done
listing=$(nm -A "$archive")
for member in "$@"; do
  if grep ":$member:" <<<"$listing" | grep -E ' [VvWwu] '; then
    echo "$member holds the weak symbols above"
    exit 1
  fi
done
echo "no weak symbols in: $*"
