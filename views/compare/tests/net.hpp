#pragma once

/// A convolutional net that writes a prints file of its own forward, with faults and in other spellings.

#include <ATen/ATen.h>

#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <torchtap/base/crc32.hpp>
#include <torchtap/views/compare/run.hpp>

#include "tests/support.hpp"

namespace torchtap_test {

namespace frames = torchtap::views::frames;
namespace compare = torchtap::views::compare;

/// Makes the bytes of a prints file.
class Prints {
 public:
  using Forward = std::function<at::Tensor(const at::Tensor&)>;

  std::string bytes;
  std::uint32_t thread = 0, rank = 0;
  std::string name;               // of the next results
  std::vector<std::size_t> ends;  // of each frame
  /// Calls that are not seen, as those that a compiler put into the program are not.
  std::function<bool(const std::string& path, const std::string& type)> hides;

  void header(const std::string& text) {
    frames::Frame frame;
    frame.kind = frames::Kind::header;
    frame.text = text;
    frame.without_data = true;
    add(frame);
  }
  void tensor(frames::Kind kind, const std::string& path, const std::string& type, const at::Tensor& tensor,
              std::uint64_t sample = 0, std::uint16_t slot = 0, bool whole = false) {
    frames::Frame frame;
    frame.kind = kind, frame.path = path, frame.type = type, frame.sample = sample, frame.slot = slot;
    compare::Fingerprint print;
    const at::Tensor data = tensor.defined() ? tensor.contiguous() : tensor;
    if (!tensor.defined()) {
      frame.without_data = true, frame.text = "it is undefined", frame.result = "fingerprint";
    } else if (whole) {
      frame.dtype = static_cast<std::uint8_t>(data.scalar_type());
      frame.dims = static_cast<std::uint8_t>(data.dim());
      std::copy(data.sizes().begin(), data.sizes().end(), frame.sizes.begin());
      frame.data = data.data_ptr(), frame.data_bytes = data.nbytes();
    } else {
      print = compare::fingerprint(tensor);
      frame.dims = 1, frame.sizes[0] = frame.data_bytes = sizeof print;
      frame.data = &print, frame.result = "fingerprint", frame.text = name;
    }
    add(frame);
  }
  /// What is no tensor: `result` is "value" or "exception".
  void other(const std::string& path, const std::string& type, const std::string& result,
             const std::string& text, std::uint16_t slot = 0) {
    frames::Frame frame;
    frame.kind = frames::Kind::forward_output, frame.path = path, frame.type = type, frame.slot = slot;
    frame.without_data = true, frame.result = result;
    const std::string line = name + "\t" + text;
    frame.text = line;
    add(frame);
  }
  void weight(const std::string& name, const std::string& type, const at::Tensor& value,
              bool buffer = false) {
    tensor(buffer ? frames::Kind::buffer : frames::Kind::parameter, name, type, value);
  }
  at::Tensor call(const std::string& path, const std::string& type, const at::Tensor& x,
                  const Forward& forward) {
    if (hides && hides(path, type)) return forward(x);
    const auto sample = samples_[{thread, path}]++;
    tensor(frames::Kind::forward_input, path, type, x, sample);
    at::Tensor y = forward(x);
    tensor(frames::Kind::forward_output, path, type, y, sample);
    return y;
  }
  void add(frames::Frame frame) {
    frame.sequence = ends.size(), frame.thread = thread, frame.rank = rank;
    frame.has_checksum = true;
    frame.checksum = torchtap::base::crc32(0, frame.data, frame.data_bytes);
    const std::size_t at = bytes.size();
    bytes.resize(at + frames::frame_bytes(frame));
    frames::write_header(frame, &bytes[at]);
    if (frame.data_bytes != 0)
      std::memcpy(&bytes[at + frames::header_bytes(frame)], frame.data, frame.data_bytes);
    ends.push_back(bytes.size());
  }

 private:
  std::map<std::pair<std::uint32_t, std::string>, std::uint64_t> samples_;
};

/// Three blocks of convolution, batch normalisation and activation, with a shortcut, and a classifier.
struct Net {
  std::map<std::string, at::Tensor> weights;
  std::vector<std::string> names;                 // of the weights, in order
  std::map<std::string, double> eps;              // of a normalisation, if not 1e-5
  std::map<std::string, Prints::Forward> faults;  // what is done to the output of a module
  std::string blocks = "layer";                   // how blocks are called
  bool dropouts = true, relus = true;             // whether these are modules
  bool shared_relu = false;                       // one for all blocks
  bool shortcut = true;
  bool numbers = false;  // entries of blocks are 0, 1, …, where there are dropouts or not
  at::ScalarType dtype = at::kFloat;
  bool compiled = false;  // only convolutions and activations are seen, and no root

  Net() {
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
    const auto random = [&](at::IntArrayRef sizes) { return at::randn(sizes, generator); };
    const auto set = [&](const std::string& name, const at::Tensor& value) {
      weights[name] = value, names.push_back(name);
    };
    for (const std::string i : {"1", "2", "3"}) {
      const std::string at = "layer" + i + ".";
      set(at + "conv.weight", random({8, i == "1" ? 3 : 8, 3, 3}) * 0.2);
      set(at + "bn.weight", 1 + 0.2 * random({8}));
      set(at + "bn.bias", 0.2 * random({8}));
      set(at + "bn.running_mean", 0.1 * random({8}));
      set(at + "bn.running_var", 0.5 + random({8}).abs());
    }
    set("fc.weight", random({10, 8}) * 0.3);
    set("fc.bias", random({10}) * 0.1);
    set("unused.weight", random({4, 4}));
  }

  std::string entry(const std::string& name) const {
    static const std::vector<std::string> with = {"conv", "drop", "bn", "relu"},
                                          without = {"conv", "bn", "relu"};
    const auto& all = dropouts ? with : without;
    return numbers ? std::to_string(std::find(all.begin(), all.end(), name) - all.begin()) : name;
  }
  std::string spelled(const std::string& name) const {  // "layer1.conv.weight" as this net calls it
    if (name.rfind("layer", 0) != 0) return name;
    const auto from = name.find('.'), to = name.find('.', from + 1);
    return blocks + name.substr(5, from - 4) + entry(name.substr(from + 1, to - from - 1)) +
           (to == std::string::npos ? "" : name.substr(to));
  }

  /// Writes weights and one forward.
  void run(Prints& prints, const at::Tensor& images, bool with_weights = true) const {
    const auto w = [&](const std::string& name) { return weights.at(name).to(dtype); };
    const auto call = [&](const std::string& path, const std::string& type, const at::Tensor& x,
                          const Prints::Forward& forward) {
      const auto fault = faults.find(path);
      return prints.call(spelled(path), type, x, [&](const at::Tensor& t) {
        return fault == faults.end() ? forward(t) : fault->second(forward(t));
      });
    };
    for (const auto& name : names) {
      const bool buffer = name.find("running") != std::string::npos;
      const std::string type = name.find("bn") != std::string::npos     ? "BatchNorm2d"
                               : name.find("conv") != std::string::npos ? "Conv2d"
                                                                        : "Linear";
      if (with_weights && weights.count(name) != 0) prints.weight(spelled(name), type, w(name), buffer);
    }
    prints.call("", "Net", images.to(dtype), [&](at::Tensor x) {
      for (const std::string i : {"1", "2", "3"}) {
        const std::string at = "layer" + i;
        x = prints.call(blocks + i, "Block", x, [&](const at::Tensor& in) {
          at::Tensor y = call(at + ".conv", "Conv2d", in, [&](const at::Tensor& t) {
            return at::conv2d(t, w(at + ".conv.weight"), {}, 1, 1);
          });
          if (dropouts) y = call(at + ".drop", "Dropout", y, [](const at::Tensor& t) { return t.clone(); });
          y = call(at + ".bn", "BatchNorm2d", y, [&](const at::Tensor& t) {
            const auto other = eps.find(at + ".bn");
            return at::batch_norm(t, w(at + ".bn.weight"), w(at + ".bn.bias"), w(at + ".bn.running_mean"),
                                  w(at + ".bn.running_var"), false, 0,
                                  other == eps.end() ? 1e-5 : other->second, false);
          });
          if (i != "1" && shortcut) y = y + in;
          const auto relu = [](const at::Tensor& t) { return at::relu(t); };
          return relus ? call(shared_relu ? "relu" : at + ".relu", "ReLU", y, relu) : relu(y);
        });
      }
      x = x.mean({2, 3});
      return call("fc", "Linear", x, [&](const at::Tensor& t) {
        const auto bias = weights.find("fc.bias");
        return at::linear(t, w("fc.weight"), bias == weights.end() ? at::Tensor() : bias->second.to(dtype));
      });
    });
  }

  std::string prints(const at::Tensor& images, int forwards = 1) const {
    Prints result;
    if (compiled) {
      result.hides = [](const std::string&, const std::string& type) {
        return type != "Conv2d" && type != "ReLU";
      };
    }
    result.header("language\tc++\ncommand\tnet\n");
    for (int i = 0; i < forwards; ++i) run(result, images + i, i == 0);
    return result.bytes;
  }
};

inline at::Tensor images() {
  return at::rand({2, 3, 24, 24}, at::make_generator<at::CPUGeneratorImpl>(11));
}

inline void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A run of these bytes, whose file is gone.
inline compare::Run run_of(const std::string& bytes) {
  const TemporaryDirectory directory;
  write(directory / "a.prints", bytes);
  return compare::Run::read(directory / "a.prints");
}

}  // namespace torchtap_test
