// Short messages over TCP. They travel beside MPI, so that ranks learn of the death of another.
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

/// Between the failure detector of each rank and the failure monitor. For `failed` and `left` the number is
/// that of the last collective which is not concerned; for a position, of the last one that was begun.
struct Message {
  enum class Kind : uint32_t {
    hello,           ///< a rank connects; its number is the token
    failed,          ///< a rank failed
    left,            ///< a rank begins no more collectives
    finished,        ///< all ranks have left or died
    timed_out,       ///< a collective timed out on a rank
    query_position,  ///< the monitor asks for positions
    position         ///< the last collective that a rank has begun
  };
  Kind kind = Kind::hello;
  int32_t rank = 0;
  uint64_t number = 0;
  std::string text;
};

/// One end of a connection. No function blocks.
class Connection {
 public:
  explicit Connection(Descriptor socket) : socket_(std::move(socket)) {}
  int descriptor() const { return socket_.get(); }
  /// Returns false if the peer is gone, or has not read for a long time.
  bool send(const Message& message);
  /// Reads the bytes that have arrived; returns false if the peer is gone.
  bool receive();
  /// The next complete message.
  std::optional<Message> next();

 private:
  Descriptor socket_;
  std::string received_;
};

/// A listening socket, and its addresses for other ranks: "address:port", separated by commas. On this
/// machine only, or on all its IPv4 addresses. Throws Error.
std::pair<Descriptor, std::string> listen_anywhere(bool this_machine_only);
/// A connection to the first address that accepts one. Throws Error.
Descriptor connect_to(const std::string& addresses);
/// Enables the detection of a peer whose machine is gone, and the immediate sending of short messages.
void detect_dead_peer(int socket);

}  // namespace espalier
