#pragma once

// The sockets by which readers find publishers: one in a directory that only this user may enter.

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include <torchtap/views/stream/detail/wire.hpp>

namespace torchtap::views::stream::detail {

/// The folder for publishers' sockets, made if it is missing: `directory`, or if that is empty the first of
/// $XDG_RUNTIME_DIR/torchtap, /tmp/torchtap-UID and $HOME/.torchtap that belongs to this user alone. Throws
/// `c10::ValueError` if others could put something there.
std::string rendezvous(const std::string& directory);
/// The folders in which readers look for sockets: `directory`, or all of these that exist. Throws
/// `c10::ValueError` for a `directory` in which others could put something.
std::vector<std::string> meeting_places(const std::string& directory);
/// The socket of the publisher called `name`. Throws `c10::ValueError`, which begins with `call`, for a name
/// that cannot be one.
std::string socket_path(const std::string& call, const std::string& directory, const std::string& name);
/// The publishers' names in a directory, sorted; some may be dead.
std::vector<std::string> names_in(const std::string& directory);
/// The names of living publishers.
std::vector<std::string> living_names_in(const std::string& directory);

/// A socket at a path, removed with it.
class Listener {
 public:
  /// Replaces the socket of a dead process. Throws `c10::ValueError`, which begins with `call`, if a process
  /// that lives listens there.
  Listener(const std::string& call, std::string path);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener();

  const Descriptor& socket() const noexcept { return socket_; }
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
  Descriptor socket_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  const base::MadeHere made_here_;
};

/// The next connection of a process of this user or of root. Nothing if no connection waits, or if another
/// user's did, which is closed.
std::optional<Descriptor> accept(const Descriptor& listener);
/// A connection to a publisher, or none and the reason in `error`. Throws `c10::ValueError` if the publisher
/// is another user's.
Descriptor connect(const std::string& path, int& error);

struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
};
Peer peer_of(const Descriptor& socket);

/// Sends a packet, and descriptors with it. False if the other end is gone or takes nothing at the moment.
bool send(const Descriptor& socket, const std::string& packet, const std::vector<int>& descriptors = {});

enum class Received { packet, nothing, end };
/// Takes a packet without waiting for one, and at most two descriptors that came with it.
Received receive(const Descriptor& socket, std::string& packet,
                 std::vector<Descriptor>* descriptors = nullptr);

}  // namespace torchtap::views::stream::detail
