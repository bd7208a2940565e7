// The handle: what users call, with their source line on what goes wrong.
#include "espalier/executor/executor.h"

#include <fmt/format.h>

#include <new>
#include <stdexcept>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/executor/c_export/export.h"
#include "espalier/executor/communicators/caller.h"
#include "espalier/executor/load.h"
#include "espalier/executor/training/plan_file/loaded.h"
#include "espalier/executor/training/plan_for.h"
#include "espalier/executor/training/trainer.h"

namespace espalier {

class Executor::Impl : public Trainer {
 public:
  using Trainer::Trainer;
};

namespace {

/// `located`, for calls that may communicate. `function` is their name.
template <class F>
decltype(auto) located_in(const char* function, const std::source_location& where, F&& f) {
  const CallerScope caller(where, function);
  return located(where, std::forward<F>(f));
}

/// And may make plans: their memory depends on the sizes in a tree, or in a file.
template <class F>
decltype(auto) with_errors(const char* function, const std::source_location& where, F&& f) {
  return located_in(function, where, [&]() -> decltype(auto) {
    try {
      return f();
    } catch (const std::bad_alloc&) {
      throw OutOfMemory("the system has no memory left");
    } catch (const std::length_error&) {
      throw OutOfMemory("a list would have more elements than memory can hold");
    }
  });
}

/// Figures of an epoch, and values in a plan file, that are no outputs of the user's.
void check_output_names(const ExecutorOptions& options) {
  for (const auto& output : options.outputs)
    for (const std::string_view taken : {"loss", "validation_loss", "value"})
      if (output.first == taken)
        throw Error(fmt::format("get_executor: an output cannot be named '{}', which is {}", taken,
                                taken == "value" ? "the tree's value" : "the loss of an epoch"));
}

}  // namespace

Executor internal::make_executor(const Variable& root, const ExecutorOptions& options,
                                 bool gather_gradients) {
  return Executor(std::make_shared<Executor::Impl>(root, options, gather_gradients));
}

Executor Variable::get_executor(const ExecutorOptions& options, Where where) const {
  return with_errors("get_executor", where, [&] {
    check_output_names(options);
    return internal::make_executor(*this, options, false);
  });
}
Executor Variable::get_executor() const { return get_executor({}, need().where); }
Plan Variable::plan_for(const PlanOptions& options, Where where) const {
  return with_errors("plan_for", where, [&] { return Plan(compile_for(*this, options)); });
}

Executor load_executor(const std::filesystem::path& path, const LoadOptions& options, Executor::Where where) {
  return with_errors("load_executor", where, [&] {
    const LoadedStep loaded = load_step(path, options, where);
    const auto impl = std::make_shared<Executor::Impl>(loaded.root, loaded.options, false,
                                                       loaded.step ? &*loaded.step : nullptr);
    if (loaded.continues) impl->continue_run(loaded.run.state, loaded.run.within);
    return Executor(impl);
  });
}

// By value: a callback may let go of the handle.
std::shared_ptr<Executor::Impl> Executor::impl() const {
  if (!impl_) throw Error("Executor: this one is empty; get_executor gives one that runs");
  return impl_;
}

History Executor::execute(const ExecuteOptions& options, Where where) const {
  return with_errors("execute", where, [&] { return impl()->execute(options); });
}
StepInfo Executor::step(const Feeds& feeds, Where where) const {
  return with_errors("step", where, [&] { return impl()->step(feeds); });
}
Tensor Executor::run(const Feeds& feeds, Where where) const {
  return with_errors("run", where, [&] { return impl()->run(feeds); });
}
StepValues Executor::run_outputs(const Feeds& feeds, Where where) const {
  return with_errors("run_outputs", where, [&] { return impl()->run_outputs(feeds); });
}
void Executor::warm_up(const FeedShapes& shapes, int threads, Where where) const {
  with_errors("warm_up", where, [&] { impl()->warm_up(shapes, threads); });
}
Tensor Executor::value(Where where) const {
  return located_in("value", where, [&] { return impl()->value(); });
}
Tensor Executor::output(std::string_view name, Where where) const {
  return located_in("output", where, [&] { return impl()->output(name); });
}
double Executor::loss_scale(Where where) const {
  return located(where, [&] { return impl()->loss_scale(); });
}
void Executor::on(Event event, std::function<void(const StepInfo&)> f, Where where) const {
  if (!f) located(where, [] { throw Error("on: there is no function to call"); });
  located(where, [&] { impl()->on(event, std::move(f)); });
}
void Executor::use(const AnyCallback& callback, Where where) const {
  if (!callback.callback()) located(where, [] { throw Error("use: there is no callback"); });
  located(where, [&] { impl()->use(callback); });
}
void Executor::stop(Where where) const {
  located(where, [&] { return impl()->stop(); });
}
void Executor::checkpoint(const std::filesystem::path& folder, Where where) const {
  located_in("checkpoint", where, [&] { impl()->checkpoint(folder); });
}
void Executor::resume(const std::filesystem::path& folder, Where where) const {
  located_in("resume", where, [&] { impl()->resume(folder); });
}
ExportedSizes Executor::export_c(const std::filesystem::path& file, const ExportOptions& options,
                                 Where where) const {
  return located(where, [&] {
    ExportedSizes sizes;
    impl()->with_settled_leaves(
        "export_c", [&](const Setup& setup) { sizes = c_export::export_files(setup, file, options); });
    return sizes;
  });
}
void Executor::save(const std::filesystem::path& path, const SaveOptions& options, Where where) const {
  located(where, [&] { impl()->save(path, options); });
}
Mode Executor::mode(Where where) const {
  return located(where, [&] { return impl()->mode(); });
}
std::vector<ValueInfo> Executor::inputs(Where where) const {
  return located(where, [&] { return impl()->inputs(); });
}
std::vector<ValueInfo> Executor::outputs(Where where) const {
  return located(where, [&] { return impl()->outputs(); });
}
std::vector<LeafInfo> Executor::leaves(Where where) const {
  return located(where, [&] { return impl()->leaves(); });
}
Plan Executor::plan(Where where) const {
  return located(where, [&] { return impl()->plan(); });
}
void Executor::profile(const std::filesystem::path& trace, const ProfileOptions& options, Where where) const {
  located(where, [&] {
    if (trace.empty()) throw FileError("profile: the trace needs the name of a file");
    impl()->profile(trace, options);
  });
}
void Executor::profile(const ProfileOptions& options, Where where) const {
  located(where, [&] { impl()->profile({}, options); });
}
void Executor::report(const std::filesystem::path& html, Where where) const {
  located(where, [&] { impl()->report(html); });
}

}  // namespace espalier
