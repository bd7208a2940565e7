#include "espalier/nn/recurrent.h"

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/recurrent_state.h"

namespace espalier::nn {

namespace {

std::shared_ptr<LayerState> new_layer(std::string_view kind, RecurrentCell cell, const LstmForm& form,
                                      const RecurrentOptions& options, const Module::Where& where) {
  return located(where, [&] { return std::make_shared<RecurrentState>(kind, cell, form, options); });
}

void create_layer(LayerState& layer, int64_t in, DType dtype, const Module::Where& where) {
  const CallScope scope(where, layer.kind());
  located(where, [&] { static_cast<RecurrentState&>(layer).create_for(in, dtype); });
}

SequenceOutput<LSTMState> call(LayerState& layer, const Variable& x, const LSTMState& state,
                               const Variable& lengths, const Module::Where& where) {
  const CallScope scope(where, layer.kind());
  return located(*build_context().where, [&] {
    (void)x.shape();  // an undefined Variable throws here
    auto made = static_cast<RecurrentState&>(layer).run(x, state, lengths);
    made.outputs = layer.after_hooks(x, made.outputs);
    return made;
  });
}

PackedOutput<LSTMState> call(LayerState& layer, const data::PackedSequence& x, const LSTMState& state,
                             const Module::Where& where) {
  const CallScope scope(where, layer.kind());
  return located(*build_context().where, [&] {
    (void)x.data.shape();
    auto made = static_cast<RecurrentState&>(layer).run(x, state);
    made.outputs.data = layer.after_hooks(x.data, made.outputs.data);
    return made;
  });
}

SequenceOutput<Variable> without_c(SequenceOutput<LSTMState> made) {
  return {std::move(made.outputs), std::move(made.state.h)};
}
PackedOutput<Variable> without_c(PackedOutput<LSTMState> made) {
  return {std::move(made.outputs), std::move(made.state.h)};
}

template <class Options>
RecurrentOptions common(const Options& o) {
  return {o.layers,      o.bidirectional, o.bias,        o.batch_first, o.dropout,
          o.variational, o.weight_noise,  o.initializer, o.dtype};
}
LstmForm form_of(int64_t hidden, const LstmOptions& o) {
  return {hidden, o.bias, o.projection, o.peepholes, o.coupled, o.layer_norm};
}

/// A state that was passed must be there.
LSTMState given(const Variable& h, const Module::Where& where) {
  return located(where, [&] {
    (void)h.shape();
    return LSTMState{h, {}};
  });
}
const Variable& given(const Lengths& lengths, const Module::Where& where) {
  located(where, [&] { (void)lengths.each.shape(); });
  return lengths.each;
}

}  // namespace

Rnn::Rnn(int64_t hidden, RnnOptions options, Where where)
    : LayerOf(new_layer(
          "Rnn", options.nonlinearity == Nonlinearity::tanh ? RecurrentCell::tanh : RecurrentCell::relu,
          LstmForm{hidden}, common(options), where)) {}
Rnn::Rnn(int64_t in, int64_t hidden, const RnnOptions& options, const Where* where)
    : Rnn(hidden, options, *where) {
  create_layer(layer_state(), in, options.dtype, *where);
}
SequenceOutput<Variable> Rnn::operator()(const Variable& x, Where where) const {
  return without_c(call(layer_state(), x, {}, {}, where));
}
SequenceOutput<Variable> Rnn::operator()(const Variable& x, const Variable& state, Where where) const {
  return without_c(call(layer_state(), x, given(state, where), {}, where));
}
SequenceOutput<Variable> Rnn::operator()(const Variable& x, const Lengths& lengths, Where where) const {
  return without_c(call(layer_state(), x, {}, given(lengths, where), where));
}
SequenceOutput<Variable> Rnn::operator()(const Variable& x, const Variable& state, const Lengths& lengths,
                                         Where where) const {
  return without_c(call(layer_state(), x, given(state, where), given(lengths, where), where));
}
PackedOutput<Variable> Rnn::operator()(const data::PackedSequence& x, Where where) const {
  return without_c(call(layer_state(), x, {}, where));
}
PackedOutput<Variable> Rnn::operator()(const data::PackedSequence& x, const Variable& state,
                                       Where where) const {
  return without_c(call(layer_state(), x, given(state, where), where));
}

Gru::Gru(int64_t hidden, RecurrentOptions options, Where where)
    : LayerOf(new_layer("Gru", RecurrentCell::gru, LstmForm{hidden}, options, where)) {}
Gru::Gru(int64_t in, int64_t hidden, const RecurrentOptions& options, const Where* where)
    : Gru(hidden, options, *where) {
  create_layer(layer_state(), in, options.dtype, *where);
}
SequenceOutput<Variable> Gru::operator()(const Variable& x, Where where) const {
  return without_c(call(layer_state(), x, {}, {}, where));
}
SequenceOutput<Variable> Gru::operator()(const Variable& x, const Variable& state, Where where) const {
  return without_c(call(layer_state(), x, given(state, where), {}, where));
}
SequenceOutput<Variable> Gru::operator()(const Variable& x, const Lengths& lengths, Where where) const {
  return without_c(call(layer_state(), x, {}, given(lengths, where), where));
}
SequenceOutput<Variable> Gru::operator()(const Variable& x, const Variable& state, const Lengths& lengths,
                                         Where where) const {
  return without_c(call(layer_state(), x, given(state, where), given(lengths, where), where));
}
PackedOutput<Variable> Gru::operator()(const data::PackedSequence& x, Where where) const {
  return without_c(call(layer_state(), x, {}, where));
}
PackedOutput<Variable> Gru::operator()(const data::PackedSequence& x, const Variable& state,
                                       Where where) const {
  return without_c(call(layer_state(), x, given(state, where), where));
}

Lstm::Lstm(int64_t hidden, LstmOptions options, Where where)
    : LayerOf(new_layer("Lstm", RecurrentCell::lstm, form_of(hidden, options), common(options), where)) {}
Lstm::Lstm(int64_t in, int64_t hidden, const LstmOptions& options, const Where* where)
    : Lstm(hidden, options, *where) {
  create_layer(layer_state(), in, options.dtype, *where);
}
SequenceOutput<LSTMState> Lstm::operator()(const Variable& x, Where where) const {
  return call(layer_state(), x, {}, {}, where);
}
SequenceOutput<LSTMState> Lstm::operator()(const Variable& x, const LSTMState& state, Where where) const {
  return call(layer_state(), x, state, {}, where);
}
SequenceOutput<LSTMState> Lstm::operator()(const Variable& x, const Lengths& lengths, Where where) const {
  return call(layer_state(), x, {}, given(lengths, where), where);
}
SequenceOutput<LSTMState> Lstm::operator()(const Variable& x, const LSTMState& state, const Lengths& lengths,
                                           Where where) const {
  return call(layer_state(), x, state, given(lengths, where), where);
}
PackedOutput<LSTMState> Lstm::operator()(const data::PackedSequence& x, Where where) const {
  return call(layer_state(), x, {}, where);
}
PackedOutput<LSTMState> Lstm::operator()(const data::PackedSequence& x, const LSTMState& state,
                                         Where where) const {
  return call(layer_state(), x, state, where);
}

}  // namespace espalier::nn
