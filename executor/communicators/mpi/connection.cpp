#include "espalier/executor/communicators/mpi/connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "espalier/core/error.h"

namespace espalier {
namespace {

struct Head {
  uint32_t kind;
  int32_t rank;
  uint64_t number;
  uint64_t length;
};

constexpr size_t longest_text = 1 << 16;
constexpr int connect_milliseconds = 3000;

[[noreturn]] void throw_system(const char* what) {
  throw Error(fmt::format("ranks cannot talk to each other: {}: {}", what, std::strerror(errno)));
}

std::string own_addresses() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) throw_system("getifaddrs");
  std::string list;
  for (const ifaddrs* one = all; one; one = one->ifa_next) {
    if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET) continue;
    if (!(one->ifa_flags & IFF_UP) || (one->ifa_flags & IFF_LOOPBACK)) continue;
    char text[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr, text, sizeof(text));
    list += (list.empty() ? "" : ",") + std::string(text);
  }
  freeifaddrs(all);
  return list;
}

bool connect_in_time(int socket, const sockaddr_in& address) {
  if (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd wait{socket, POLLOUT, 0};
  if (poll(&wait, 1, connect_milliseconds) != 1) return false;
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
  errno = error;
  return error == 0;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

Descriptor::~Descriptor() {
  if (number_ >= 0) close(number_);
}

bool Connection::send(const Message& message) {
  const std::string text = message.text.substr(0, longest_text);
  const Head head{static_cast<uint32_t>(message.kind), message.rank, message.number, text.size()};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof(head));
  bytes += text;
  // Messages are few and short: a full buffer means that the peer has not read for a long time.
  const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent == static_cast<ssize_t>(bytes.size());
}

bool Connection::receive() {
  char buffer[4096];
  while (true) {
    const ssize_t got = recv(socket_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got > 0) {
      received_.append(buffer, static_cast<size_t>(got));
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
}

std::optional<Message> Connection::next() {
  Head head;
  if (received_.size() < sizeof(head)) return {};
  std::memcpy(&head, received_.data(), sizeof(head));
  if (head.length > longest_text) {  // not a message of this protocol
    received_.clear();
    return {};
  }
  if (received_.size() < sizeof(head) + head.length) return {};
  Message message{static_cast<Message::Kind>(head.kind), head.rank, head.number,
                  received_.substr(sizeof(head), head.length)};
  received_.erase(0, sizeof(head) + head.length);
  return message;
}

std::pair<Descriptor, std::string> listen_anywhere(bool this_machine_only) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(this_machine_only ? INADDR_LOOPBACK : INADDR_ANY);
  if (socket.get() < 0) throw_system("socket");
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    throw_system("bind");
  if (listen(socket.get(), SOMAXCONN) != 0) throw_system("listen");
  socklen_t length = sizeof(address);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw_system("getsockname");

  std::string hosts = this_machine_only ? "127.0.0.1" : own_addresses(), addresses;
  for (size_t begin = 0; begin < hosts.size();) {
    const size_t end = std::min(hosts.find(',', begin), hosts.size());
    addresses += fmt::format("{}{}:{}", addresses.empty() ? "" : ",", hosts.substr(begin, end - begin),
                             ntohs(address.sin_port));
    begin = end + 1;
  }
  return {std::move(socket), addresses};
}

Descriptor connect_to(const std::string& addresses) {
  for (size_t begin = 0; begin < addresses.size();) {
    const size_t end = std::min(addresses.find(',', begin), addresses.size());
    const std::string one = addresses.substr(begin, end - begin);
    begin = end + 1;
    const size_t colon = one.find(':');
    sockaddr_in address{};
    address.sin_family = AF_INET;
    if (colon == one.npos || inet_pton(AF_INET, one.substr(0, colon).c_str(), &address.sin_addr) != 1)
      continue;
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(one.substr(colon + 1))));
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.get() < 0) throw_system("socket");
    if (connect_in_time(socket.get(), address)) return socket;
  }
  throw Error(fmt::format("ranks cannot talk to each other: rank 0 is not reached at {}", addresses));
}

void detect_dead_peer(int socket) {
  const auto set = [&](int level, int option, int value) {
    setsockopt(socket, level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 3);  // seconds
  set(IPPROTO_TCP, TCP_KEEPINTVL, 3);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 12'000);  // milliseconds
}

}  // namespace espalier
