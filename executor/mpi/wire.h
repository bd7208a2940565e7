// Short messages over a socket: what ranks tell each other beside MPI, so that they hear of those who died.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace espalier {

/// A file descriptor that is closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.number_) { other.number_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int get() const { return number_; }

 private:
  int number_;
};

/// A failure concerns the collectives after number `number`, and so does leaving; a position is the number of
/// the last one begun.
struct Note {
  enum class Kind : uint32_t { hello, failed, left, over, late, where, position };
  Kind kind = Kind::hello;
  int32_t rank = 0;
  uint64_t number = 0;
  std::string text;
};

/// One end of a connection. Nothing here waits.
class Wire {
 public:
  explicit Wire(Descriptor socket) : socket_(std::move(socket)) {}
  int descriptor() const { return socket_.get(); }
  /// False if the other end is gone, or reads nothing.
  bool send(const Note& note);
  /// Takes what has come; false if the other end is gone.
  bool receive();
  /// The next whole note of what was taken.
  std::optional<Note> next();

 private:
  Descriptor socket_;
  std::string taken_;
};

/// A socket that listens, and where others reach it: "address:port", separated by commas. Within this
/// machine, or on all its addresses (IPv4). Throws Error.
std::pair<Descriptor, std::string> listen_anywhere(bool this_machine_only);
/// A connection to the first address that takes one. Throws Error.
Descriptor connect_to(const std::string& addresses);
/// Lets the system find out when the other end's machine is gone, and send short notes at once.
void watch_connection(int socket);

}  // namespace espalier
