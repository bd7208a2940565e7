// Operations that move elements.
#include "bridge.h"

namespace peers {
namespace {

using namespace espalier;

std::vector<Padding> paddings(const Case& c) {
  const std::vector<int64_t> before = c.integers("before"), after = c.integers("after");
  std::vector<Padding> list;
  for (size_t i = 0; i < before.size(); ++i) list.push_back({before[i], after[i]});
  return list;
}

PadMode pad_mode(const Case& c) {
  const std::string& name = c.text("mode");
  if (name == "reflect") return PadMode::reflect;
  if (name == "replicate") return PadMode::replicate;
  return name == "circular" ? PadMode::circular : PadMode::constant;
}

WindowOptions window_options(const Case& c) {
  return {.kernel = c.integers("kernel"),
          .stride = c.integers("stride"),
          .padding = c.integers("padding"),
          .dilation = c.integers("dilation")};
}

}  // namespace

std::vector<Row> layout_rows() {
  return {
      {"slice",
       [](const Case& c) -> Outputs {
         return slice(c[0], c.integer("axis"), c.integer("begin"), c.integer("end"));
       }},
      {"slice_step",
       [](const Case& c) -> Outputs {
         return slice(c[0], c.integer("axis"), c.integer("begin"), c.has("end") ? c.integer("end") : open_end,
                      c.integer("step"));
       }},
      {"slice_scatter",
       [](const Case& c) -> Outputs {
         return slice_scatter(c[0], c[1], c.integer("axis"), c.integer("begin"), c.integer("end"),
                              c.integer("step"));
       }},
      {"flip", [](const Case& c) -> Outputs { return flip(c[0], c.axes()); }},
      {"roll", [](const Case& c) -> Outputs { return roll(c[0], c.integer("shift"), c.integer("axis")); }},
      {"pad",
       [](const Case& c) -> Outputs {
         return pad(c[0], paddings(c), {.mode = pad_mode(c), .value = c.real("value")});
       }},
      {"tile", [](const Case& c) -> Outputs { return tile(c[0], c.integers("repeats")); }},
      {"repeat_interleave",
       [](const Case& c) -> Outputs {
         return repeat_interleave(c[0], c.integer("repeats"), c.integer("axis"));
       }},
      {"repeat_interleave_counts",
       [](const Case& c) -> Outputs { return repeat_interleave(c[0], c[1], c.integer("axis")); }},
      {"split", [](const Case& c) -> Outputs { return split(c[0], c.integer("size"), c.integer("axis")); }},
      {"split_sizes",
       [](const Case& c) -> Outputs { return split(c[0], c.integers("sizes"), c.integer("axis")); }},
      {"chunk", [](const Case& c) -> Outputs { return chunk(c[0], c.integer("parts"), c.integer("axis")); }},
      {"unbind", [](const Case& c) -> Outputs { return unbind(c[0], c.integer("axis")); }},
      {"broadcast_tensors", [](const Case& c) -> Outputs { return broadcast_tensors(c.inputs()); }},
      {"meshgrid",
       [](const Case& c) -> Outputs {
         return meshgrid(c.inputs(), c.text("indexing") == "xy" ? MeshIndexing::xy : MeshIndexing::ij);
       }},
      {"permute", [](const Case& c) -> Outputs { return permute(c[0], c.axes("order")); }},
      {"transpose_order", [](const Case& c) -> Outputs { return transpose(c[0], c.axes("order")); }},
      {"transpose", [](const Case& c) -> Outputs { return transpose(c[0]); }},
      {"movedim", [](const Case& c) -> Outputs { return movedim(c[0], c.axes("from"), c.axes("to")); }},
      {"swapaxes",
       [](const Case& c) -> Outputs { return swapaxes(c[0], c.integer("first"), c.integer("second")); }},
      {"unflatten",
       [](const Case& c) -> Outputs { return unflatten(c[0], c.integer("axis"), c.integers("sizes")); }},
      {"unflatten_like",
       [](const Case& c) -> Outputs { return unflatten_like(c[0], c.integer("axis"), c[1], c.axes()); }},
      {"flatten_axes",
       [](const Case& c) -> Outputs { return flatten(c[0], c.integer("first"), c.integer("last")); }},
      {"atleast_1d", [](const Case& c) -> Outputs { return atleast_1d(c[0]); }},
      {"atleast_2d", [](const Case& c) -> Outputs { return atleast_2d(c[0]); }},
      {"atleast_3d", [](const Case& c) -> Outputs { return atleast_3d(c[0]); }},
      {"reshape", [](const Case& c) -> Outputs { return reshape(c[0], c.integers("shape")); }},
      {"flatten", [](const Case& c) -> Outputs { return flatten(c[0], c.integer("first")); }},
      {"squeeze", [](const Case& c) -> Outputs { return squeeze(c[0], c.axes()); }},
      {"unsqueeze", [](const Case& c) -> Outputs { return unsqueeze(c[0], c.integer("axis")); }},
      {"broadcast_to", [](const Case& c) -> Outputs { return broadcast_to(c[0], c.integers("shape")); }},
      {"concat", [](const Case& c) -> Outputs { return concat(c.inputs(), c.integer("axis")); }},
      {"stack", [](const Case& c) -> Outputs { return stack(c.inputs(), c.integer("axis")); }},
      {"diagonal",
       [](const Case& c) -> Outputs {
         return diagonal(c[0], c.integer("offset"), c.integer("axis1"), c.integer("axis2"));
       }},
      {"trace",
       [](const Case& c) -> Outputs {
         return trace(c[0], c.integer("offset"), c.integer("axis1"), c.integer("axis2"));
       }},
      {"diag_embed", [](const Case& c) -> Outputs { return diag_embed(c[0], c.integer("offset")); }},
      {"diag", [](const Case& c) -> Outputs { return diag(c[0], c.integer("offset")); }},
      {"tril", [](const Case& c) -> Outputs { return tril(c[0], c.integer("offset")); }},
      {"triu", [](const Case& c) -> Outputs { return triu(c[0], c.integer("offset")); }},
      {"sliding_windows",
       [](const Case& c) -> Outputs {
         return sliding_windows(c[0], c.integer("axis"), c.integer("size"), c.integer("step"));
       }},
      {"unfold", [](const Case& c) -> Outputs { return unfold(c[0], window_options(c)); }},
      {"fold", [](const Case& c) -> Outputs { return fold(c[0], c.integers("sizes"), window_options(c)); }},
      {"pixel_shuffle", [](const Case& c) -> Outputs { return pixel_shuffle(c[0], c.integer("factor")); }},
      {"pixel_unshuffle",
       [](const Case& c) -> Outputs { return pixel_unshuffle(c[0], c.integer("factor")); }},
      {"channel_shuffle",
       [](const Case& c) -> Outputs { return channel_shuffle(c[0], c.integer("groups")); }},
  };
}

}  // namespace peers
