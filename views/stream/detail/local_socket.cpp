// Directories and sockets of publishers.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <torchtap/base/error.hpp>
#include <torchtap/views/stream/detail/handshake.hpp>
#include <torchtap/views/stream/detail/local_socket.hpp>

namespace torchtap::views::stream::detail {
namespace {

constexpr const char* kSuffix = ".sock";
constexpr std::size_t kDescriptors = 2;

/// In the order in which publishers try them. Anybody may be the first to make the second.
std::vector<std::string> default_directories() {
  std::vector<std::string> all;
  const auto below = [&](const char* variable, const char* name) {
    const char* const folder = std::getenv(variable);
    if (folder != nullptr && folder[0] == '/') all.push_back(std::string(folder) + name);
  };
  below("XDG_RUNTIME_DIR", "/torchtap");
  all.push_back("/tmp/torchtap-" + std::to_string(::geteuid()));
  below("HOME", "/.torchtap");
  return all;
}

std::string without_last_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

/// Whether only `owner` can create files in a directory.
bool belongs_to(const struct stat& status, uid_t owner) {
  return S_ISDIR(status.st_mode) && status.st_uid == owner && (status.st_mode & 077) == 0;
}

/// A directory that the user named; root may name another user's. False if it is not there.
bool check_named(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return false;
    system_error("look at the directory \"" + path + "\"", errno);
  }
  TORCH_CHECK_VALUE(belongs_to(status, ::geteuid() == 0 ? status.st_uid : ::geteuid()), "views::stream: \"",
                    path,
                    "\" has to be a directory of this user that nobody else may enter (mode 0700), and it is "
                    "not; remove it, or name another one.");
  return true;
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  TORCH_CHECK_VALUE(path.size() < sizeof address.sun_path, "views::stream: the path of the socket \"", path,
                    "\" is ", path.size(), " bytes long, and the system takes ", sizeof address.sun_path - 1,
                    "; take a shorter directory or name.");
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Descriptor new_socket() {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) system_error("make a socket", errno);
  return socket;
}

/// 0, or an errno.
int try_connect(const Descriptor& socket, const std::string& path) {
  const sockaddr_un address = address_of(path);
  const auto* const where = reinterpret_cast<const sockaddr*>(&address);
  while (::connect(socket.get(), where, sizeof address) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

/// Keeps other publishers from looking at or changing the directory of `path`.
Descriptor lock_directory(const std::string& path) {
  const std::string directory = path.substr(0, path.rfind('/'));
  Descriptor lock(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock) ::flock(lock.get(), LOCK_EX);
  return lock;
}

bool ours_or_root(uid_t uid) {
  return uid == ::geteuid() || uid == 0;
}

}  // namespace

std::string rendezvous(const std::string& directory) {
  if (!directory.empty()) {
    std::string path = without_last_slash(directory);
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
      system_error("make the directory \"" + path + "\"", errno);
    check_named(path);
    return path;
  }
  const auto all = default_directories();
  for (const auto& path : all) {
    struct stat status {};
    ::mkdir(path.c_str(), 0700);
    if (::lstat(path.c_str(), &status) == 0 && belongs_to(status, ::geteuid())) return path;
  }
  TORCH_CHECK_VALUE(false, "views::stream: none of ", base::quoted(all),
                    " is or can be made a directory of this user that nobody else may enter (mode 0700); "
                    "remove the one that is there, or name another one.");
}

std::vector<std::string> meeting_places(const std::string& directory) {
  std::vector<std::string> there;
  if (!directory.empty()) {
    there.push_back(without_last_slash(directory));
    check_named(there.front());
    return there;
  }
  for (const auto& path : default_directories()) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) == 0 && belongs_to(status, ::geteuid())) there.push_back(path);
  }
  return there;
}

std::string socket_path(const std::string& call, const std::string& directory, const std::string& name) {
  const bool fits = !name.empty() && name.size() <= 64 && name[0] != '.' &&
                    std::all_of(name.begin(), name.end(), [](unsigned char letter) {
                      return std::isalnum(letter) != 0 || std::strchr("._-+@", letter) != nullptr;
                    });
  TORCH_CHECK_VALUE(
      fits, call, ": \"", name,
      "\" is no name of a stream; expected 1 to 64 letters, digits and \"._-+@\", without a dot in "
      "front.");
  return directory + "/" + name + kSuffix;
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(directory.c_str()), &::closedir);
  if (folder == nullptr) return names;
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string file = entry->d_name;
    const std::size_t suffix = std::strlen(kSuffix);
    if (file.size() > suffix && file.compare(file.size() - suffix, suffix, kSuffix) == 0)
      names.push_back(file.substr(0, file.size() - suffix));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> living_names_in(const std::string& directory) {
  std::vector<std::string> names = names_in(directory);
  const auto is_dead = [&](const std::string& name) {
    const std::string path = directory + "/" + name + kSuffix;
    return path.size() >= sizeof sockaddr_un::sun_path || try_connect(new_socket(), path) == ECONNREFUSED;
  };
  names.erase(std::remove_if(names.begin(), names.end(), is_dead), names.end());
  return names;
}

Listener::Listener(const std::string& call, std::string path) : path_(std::move(path)) {
  const Descriptor lock = lock_directory(path_);
  const sockaddr_un address = address_of(path_);
  const Descriptor probe = new_socket();
  const int error = try_connect(probe, path_);
  TORCH_CHECK_VALUE(error == ECONNREFUSED || error == ENOENT, call, ": ",
                    error == 0 ? c10::str("process ", peer_of(probe).pid, " publishes under this name")
                               : c10::str("\"", path_, "\" is in use: ", std::strerror(error)),
                    "; take another name.");
  if (error == ECONNREFUSED) ::unlink(path_.c_str());
  socket_ = new_socket();
  ::fchmod(socket_.get(), 0600);  // which the file gets, whatever the umask, which belongs to the program
  if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    system_error("make the socket \"" + path_ + "\"", errno);
  struct stat status {};
  ::lstat(path_.c_str(), &status);
  device_ = status.st_dev;
  inode_ = status.st_ino;
  ::chmod(path_.c_str(), 0600);
  if (::listen(socket_.get(), 64) != 0) system_error("listen at \"" + path_ + "\"", errno);
}

Listener::~Listener() {
  if (!made_here_) return;
  const Descriptor lock = lock_directory(path_);
  struct stat status {};
  if (::lstat(path_.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == inode_)
    ::unlink(path_.c_str());
}

std::optional<Descriptor> accept(const Descriptor& listener) {
  Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket || !ours_or_root(peer_of(socket).uid)) return std::nullopt;
  return socket;
}

Descriptor connect(const std::string& path, int& error) {
  Descriptor socket = new_socket();
  error = try_connect(socket, path);
  if (error != 0) return {};
  const Peer peer = peer_of(socket);
  // Root may have named the directory of another user, in which that user publishes.
  struct stat folder {};
  const bool named = ::geteuid() == 0 && ::lstat(path.substr(0, path.rfind('/')).c_str(), &folder) == 0 &&
                     folder.st_uid == peer.uid;
  TORCH_CHECK_VALUE(ours_or_root(peer.uid) || named, "views::stream: at \"", path, "\" process ", peer.pid,
                    " of user ", peer.uid, " listens, which is not this user.");
  return socket;
}

Peer peer_of(const Descriptor& socket) {
  ucred credentials{};
  credentials.uid = static_cast<uid_t>(-1);
  socklen_t size = sizeof credentials;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size);
  return {credentials.pid, credentials.uid};
}

bool send(const Descriptor& socket, const std::string& packet, const std::vector<int>& descriptors) {
  iovec part{const_cast<char*>(packet.data()), packet.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptors * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(packet.size());
}

Received receive(const Descriptor& socket, std::string& packet, std::vector<Descriptor>* descriptors) {
  packet.resize(kMostMessage);
  iovec part{packet.data(), packet.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptors * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t size = ::recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) {
    packet.clear();
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? Received::nothing : Received::end;
  }
  packet.resize(static_cast<std::size_t>(size));
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int numbers[kDescriptors];
    const std::size_t count = std::min((header->cmsg_len - CMSG_LEN(0)) / sizeof(int), kDescriptors);
    std::memcpy(numbers, CMSG_DATA(header), count * sizeof(int));
    for (std::size_t i = 0; i < count; ++i) {
      Descriptor taken(numbers[i]);  // closed here unless they are wanted
      if (descriptors != nullptr) descriptors->push_back(std::move(taken));
    }
  }
  if ((message.msg_flags & MSG_TRUNC) != 0) packet.clear();  // longer than any message
  return size == 0 ? Received::end : Received::packet;
}

}  // namespace torchtap::views::stream::detail
