// HTTP and WebSocket by Boost.Beast. Everything but the constructor and destructor runs in one thread.
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/websocket.hpp>
#include <c10/util/Exception.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <list>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include <torchtap/base/process.hpp>
#include <torchtap/base/thread.hpp>
#include <torchtap/views/explorer/detail/http_server.hpp>
#include <torchtap/views/explorer/detail/site.hpp>
#include <torchtap/views/explorer/detail/viewer_notices.hpp>

namespace torchtap::views::explorer::detail {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;
using asio::ip::tcp;
using boost::system::error_code;
using HttpRequest = http::request<http::string_body>;
using HttpResponse = http::response<http::string_body>;

constexpr std::size_t most_connections = 256, most_strangers = 64, most_header = 8192, most_body = 4096;
constexpr auto patience = std::chrono::seconds(30), patience_with_strangers = std::chrono::seconds(5);
constexpr auto between_notices = std::chrono::milliseconds(200);
constexpr unsigned first_port = 8080, ports_tried = 100;
// Notebooks show the page in a frame, in a browser or in Visual Studio Code; their servers are on this
// machine, too.
constexpr const char* policy =
    "default-src 'none'; script-src 'self'; connect-src 'self'; worker-src 'self'; style-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors http://localhost:* http://127.0.0.1:* https://localhost:* vscode-webview:";

std::string text_of(beast::string_view view) {
  return {view.data(), view.size()};
}

/// State that all connections share.
struct Shared {
  Site site;
  std::set<class Viewer*> viewers;
  std::list<class Peer*> strangers;  // who have not shown the token yet, the longest first
  std::size_t connections = 0;
};

/// A connection. Until it shows the token it is a stranger, of whom there are few: one more ends the oldest.
class Peer {
 public:
  explicit Peer(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {
    ++shared_->connections;
    auto& all = shared_->strangers;
    if (all.size() >= most_strangers) {
      Peer* const oldest = all.front();
      oldest->trust();  // is on the list no more
      oldest->drop();
    }
    at_ = all.insert(all.end(), this);
  }
  virtual ~Peer() {
    --shared_->connections;
    trust();
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// Ends the connection.
  virtual void drop() = 0;

 protected:
  bool is_stranger() const noexcept { return stranger_; }
  void trust() noexcept {
    if (std::exchange(stranger_, false)) shared_->strangers.erase(at_);
  }
  const std::shared_ptr<Shared> shared_;

 private:
  bool stranger_ = true;
  std::list<Peer*>::iterator at_;
};

HttpResponse respond(const HttpRequest& request, const Answer& answer) {
  HttpResponse response(static_cast<http::status>(answer.status), request.version());
  response.set(http::field::content_type, answer.type);
  response.set(http::field::cache_control, "no-cache");
  response.set("Content-Security-Policy", policy);
  response.set("X-Content-Type-Options", "nosniff");
  response.set("Referrer-Policy", "no-referrer");
  response.set("Cross-Origin-Resource-Policy", "same-origin");
  if (!answer.tag.empty()) {
    const std::string tag = "\"" + answer.tag + "\"";
    response.set(http::field::etag, tag);
    if (answer.status == 200 && text_of(request[http::field::if_none_match]) == tag)
      response.result(http::status::not_modified);
  }
  if (!answer.encoding.empty()) response.set(http::field::vary, "Accept-Encoding");
  if (answer.encoding == "gzip") response.set(http::field::content_encoding, "gzip");
  response.keep_alive(request.keep_alive());
  if (response.result() != http::status::not_modified) response.body() = answer.body;
  const std::size_t size = response.body().size();
  if (request.method() == http::verb::head) response.body().clear();
  if (response.result() != http::status::not_modified) response.content_length(size);
  return response;
}

Asked asked_by(const HttpRequest& request) {
  const auto header = [&](http::field name) { return text_of(request[name]); };
  // "gzip;q=0" would be a way to say no that no browser uses.
  return {text_of(request.method_string()),
          text_of(request.target()),
          header(http::field::host),
          header(http::field::origin),
          header(http::field::authorization),
          request.body(),
          http::token_list(request[http::field::accept_encoding]).exists("gzip")};
}

/// A page that is told what changed. Keeps itself alive while it waits for something.
class Viewer final : public Peer, public std::enable_shared_from_this<Viewer> {
 public:
  Viewer(beast::tcp_stream stream, base::KeptHere kept, std::shared_ptr<Shared> shared)
      : Peer(std::move(shared)),
        socket_(std::move(stream)),
        kept_(std::move(kept)),
        deadline_(socket_.get_executor()) {}
  ~Viewer() override { shared_->viewers.erase(this); }

  void drop() override { beast::get_lowest_layer(socket_).close(); }

  void accept(const HttpRequest& request) {
    deadline_.expires_after(patience_with_strangers);
    deadline_.async_wait([weak = weak_from_this()](error_code) {
      const auto self = weak.lock();
      if (self != nullptr && !self->admitted_) self->drop();
    });
    beast::get_lowest_layer(socket_).expires_never();  // the WebSocket has its own timeout
    auto clock = websocket::stream_base::timeout::suggested(beast::role_type::server);
    clock.idle_timeout = patience;
    socket_.set_option(clock);
    socket_.read_message_max(most_body);
    socket_.async_accept(request, [self = shared_from_this()](error_code error) {
      if (!error) self->read();
    });
  }

  /// Sends a notice of news, unless the last notice is still on its way: then the next one covers it.
  void tell() {
    if (!admitted_ || writing_) return;
    text_ = notices_.next(shared_->site.runs);
    if (text_.empty()) return;
    writing_ = true;
    socket_.text(true);
    socket_.async_write(asio::buffer(text_), [self = shared_from_this()](error_code error, std::size_t) {
      self->writing_ = false;
      if (error) self->admitted_ = false;
    });
  }

 private:
  void read() {
    socket_.async_read(buffer_, [self = shared_from_this()](error_code error, std::size_t) {
      if (error) {
        self->admitted_ = false;
        return;
      }
      const std::string message = beast::buffers_to_string(self->buffer_.data());
      self->buffer_.consume(self->buffer_.size());
      if (!self->admitted_ && !self->admit(message)) return;
      self->read();  // also answers pings and closes
    });
  }

  bool admit(const std::string& message) {
    if (!shared_->site.guard.is_token(token_in(message))) {
      socket_.async_close(websocket::close_reason(static_cast<websocket::close_code>(4403), "wrong token"),
                          [self = shared_from_this()](error_code) {});
      return false;
    }
    admitted_ = true;
    trust();
    shared_->viewers.insert(this);
    tell();
    return true;
  }

  websocket::stream<beast::tcp_stream> socket_;
  base::KeptHere kept_;
  asio::steady_timer deadline_;  // for the token
  beast::flat_buffer buffer_;
  Notices notices_;
  std::string text_;
  bool admitted_ = false, writing_ = false;
};

/// A connection that asks by HTTP, one request after another.
class Connection final : public Peer, public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, base::KeptHere kept, std::shared_ptr<Shared> shared)
      : Peer(std::move(shared)), stream_(std::move(socket)), kept_(std::move(kept)) {}

  void drop() override { stream_.close(); }

  void read() {
    parser_ = std::make_unique<http::request_parser<http::string_body>>();
    parser_->header_limit(most_header);
    parser_->body_limit(most_body);
    stream_.expires_after(is_stranger() ? patience_with_strangers : patience);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](error_code error, std::size_t) { self->got(error); });
  }

 private:
  void got(error_code error) {
    if (error == http::error::header_limit || error == http::error::body_limit) {
      HttpRequest request;
      request.version(11);
      return write(respond(request, refusal(413, "The request is too large.")), true);
    }
    if (error) return close();
    const HttpRequest& request = parser_->get();
    if (websocket::is_upgrade(request)) return upgrade(request);
    if (shared_->site.guard.authorizes(text_of(request[http::field::authorization]))) trust();
    HttpResponse response = respond(request, shared_->site.answer(asked_by(request)));
    const bool last = response.need_eof();
    write(std::move(response), last);
  }

  void upgrade(const HttpRequest& request) {
    const std::string host = text_of(request[http::field::host]);
    if (!shared_->site.guard.knows_host(host))
      return write(respond(request, refusal(421, "This server is not known by that name.")), true);
    if (!Guard::is_own(text_of(request[http::field::origin]), host))
      return write(respond(request, refusal(403, "Pages of other sites may not connect.")), true);
    if (text_of(request.target()) != "/api/v1/live")
      return write(respond(request, refusal(404, "There is nothing at this path.")), true);
    std::make_shared<Viewer>(std::move(stream_), std::move(kept_), shared_)->accept(request);
  }

  void write(HttpResponse response, bool last) {
    response_ = std::make_unique<HttpResponse>(std::move(response));
    if (last) response_->keep_alive(false);
    stream_.expires_after(patience);
    http::async_write(stream_, *response_, [self = shared_from_this(), last](error_code error, std::size_t) {
      if (error || last) return self->close();
      self->read();
    });
  }

  void close() {
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  }

  beast::tcp_stream stream_;
  base::KeptHere kept_;
  beast::flat_buffer buffer_{most_header + most_body};
  std::unique_ptr<http::request_parser<http::string_body>> parser_;
  std::unique_ptr<HttpResponse> response_;
};

tcp::endpoint endpoint_of(const ServeOptions& options, unsigned port) {
  error_code error;
  const auto address = asio::ip::make_address(options.address(), error);
  TORCH_CHECK_VALUE(!error, "views::explorer::ServeOptions::address: \"", options.address(),
                    "\" is no IP address; 127.0.0.1 is this machine.");
  return {address, static_cast<unsigned short>(port)};
}

}  // namespace

class HttpServer::Machinery {
 public:
  Machinery(Runs runs, const ServeOptions& options, Appeared appeared)
      : acceptor_(context_), timer_(context_), pause_(context_), appeared_(std::move(appeared)) {
    TORCH_CHECK_VALUE(options.port() >= 0 && options.port() <= 65535,
                      "views::explorer::ServeOptions::port: expected 0 ", "to 65535, got ", options.port(),
                      ".");
    listen(options);
    const unsigned port = acceptor_.local_endpoint().port();
    shared_ =
        std::make_shared<Shared>(Shared{{std::move(runs), Guard(options), options.control()}, {}, {}, 0});
    const std::string& address = options.address();
    const std::string host = address.find(':') == std::string::npos ? address : "[" + address + "]";
    url_ = "http://" + (address == "0.0.0.0" || address == "::" ? "localhost" : host) + ":" +
           std::to_string(port) + "/#token=" + shared_->site.guard.token();
    accept();
    wait();
    start();
  }
  ~Machinery() {
    context_.stop();
    thread_.join();
  }
  Machinery(const Machinery&) = delete;
  Machinery& operator=(const Machinery&) = delete;

  const std::string& url() const noexcept { return url_; }
  void add(std::shared_ptr<Run> run) {
    asio::post(context_, [this, added = std::move(run)] { shared_->site.runs.push_back(added); });
  }

 private:
  void listen(const ServeOptions& options) {
    const bool chosen = options.port() != 0;
    const unsigned first = chosen ? static_cast<unsigned>(options.port()) : first_port;
    error_code error;
    for (unsigned port = first; port < first + (chosen ? 1 : ports_tried); ++port) {
      error = try_port(endpoint_of(options, port));
      if (!error) return;
    }
    TORCH_CHECK(false, "views::explorer::serve: cannot listen on ", options.address(), ":", first,
                chosen ? "" : " or the ports behind it", ": ", error.message(),
                "; choose another one with ServeOptions::port, or 0 for any that is free.");
  }

  error_code try_port(const tcp::endpoint& endpoint) {
    error_code error, ignored;
    kept_ = {};
    const base::NoForks here_alone;
    acceptor_.close(ignored);
    acceptor_.open(endpoint.protocol(), error);
    if (error) return error;
    kept_ = base::KeptHere(acceptor_.native_handle(), here_alone);
    acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (!error) acceptor_.native_non_blocking(true, error);
    return error;
  }

  void accept() {
    acceptor_.async_wait(tcp::acceptor::wait_read, [this](error_code error) {
      if (error || !take_connection()) return accept_later();
      accept();
    });
  }

  /// Whether there was nothing wrong. By hand, because Asio's accept leaves moments in which a child or
  /// another program could get the socket.
  bool take_connection() {
    tcp::socket socket(context_);
    base::KeptHere kept;
    {
      const base::NoForks here_alone;
      const int descriptor =
          ::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (descriptor < 0) return errno == EAGAIN || errno == ECONNABORTED || errno == EINTR;
      kept = base::KeptHere(descriptor, here_alone);
      error_code error;
      socket.assign(acceptor_.local_endpoint().protocol(), descriptor, error);
      if (error) ::close(descriptor);
      if (error) return false;
    }
    if (shared_->connections < most_connections)
      std::make_shared<Connection>(std::move(socket), std::move(kept), shared_)->read();
    return true;
  }

  /// Out of descriptors, say.
  void accept_later() {
    pause_.expires_after(between_notices);
    pause_.async_wait([this](error_code error) {
      if (!error) accept();
    });
  }

  /// Tells viewers what is new, at most five times a second.
  void wait() {
    timer_.expires_after(between_notices);
    timer_.async_wait([this](error_code error) {
      if (error) return;
      look_for_more();
      for (const auto& run : shared_->site.runs) refresh(*run);
      const std::set<Viewer*> viewers = shared_->viewers;
      for (Viewer* const viewer : viewers) viewer->tell();
      wait();
    });
  }

  void look_for_more() {
    if (!appeared_) return;
    const Runs more = appeared_();
    shared_->site.runs.insert(shared_->site.runs.end(), more.begin(), more.end());
  }

  static void refresh(Run& run) {
    try {
      run.refresh();
    } catch (const std::exception&) {
      run.set_state("damaged");
    }
  }

  void start() {
    thread_ = base::start_thread("torchtap-http", [this] {
      while (!context_.stopped()) {
        try {
          context_.run();
        } catch (const std::exception&) {
          // Say a connection ran out of memory; the others continue.
        }
      }
    });
  }

  asio::io_context context_{1};
  tcp::acceptor acceptor_;
  base::KeptHere kept_;
  asio::steady_timer timer_, pause_;
  Appeared appeared_;
  std::shared_ptr<Shared> shared_;
  std::string url_;
  std::thread thread_;
};

HttpServer::HttpServer(Runs runs, const ServeOptions& options, Appeared appeared)
    : machinery_(std::make_unique<Machinery>(std::move(runs), options, std::move(appeared))) {}
/// A forked child has no thread to wait for, and closed the descriptors when it began.
HttpServer::~HttpServer() {
  if (!made_here_) (void)machinery_.release();
}

const std::string& HttpServer::url() const noexcept {
  return machinery_->url();
}

void HttpServer::add(std::shared_ptr<Run> run) {
  machinery_->add(std::move(run));
}

}  // namespace torchtap::views::explorer::detail
