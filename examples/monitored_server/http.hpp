#pragma once

/// The least of HTTP/1.1 that the example needs: one request at a time, on 127.0.0.1.

#include <functional>
#include <string>

struct Request {
  std::string target;  ///< "POST /classify"
  std::string body;
};
struct Response {
  std::string type, body;
  int status = 200;
  bool last = false;  ///< the server ends after it
};

/// Prints the address once it listens, and answers until a response is the last. `port` 0: any free one.
/// Throws `std::system_error`.
void serve(int port, const std::function<Response(const Request&)>& answer);
