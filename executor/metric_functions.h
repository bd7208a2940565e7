// Functions of Metrics by name: a plan file has the name, and the program that loads it the function.
#pragma once
#include <cstddef>
#include <functional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/executor/metric.h"

namespace espalier {

/// Names a function of so many numbers for plan files, and returns it, for Metrics that files shall hold. A
/// program that loads one must have registered a function of that name, which computes the same; those of
/// executor/kit/metrics.h are registered. `means` 0: any number, which the function checks itself. May be
/// called from any thread. Throws Error without a name or a function, and if a function of that name is
/// registered.
Metric::Finish register_metric_function(std::string_view name, size_t means, Metric::Finish function,
                                        std::source_location where = std::source_location::current());

/// The registered function of that name. Throws Error if there is none.
Metric::Finish metric_function(std::string_view name,
                               std::source_location where = std::source_location::current());

namespace internal {

/// Writes the numbers of a batch in the terms of others, before both are averaged: moments about another
/// center, for one.
using AlignMeans = std::function<void(std::span<double> batch, std::span<const double> others)>;
/// That of a registered function; empty for most.
AlignMeans alignment_of(const Metric::Finish& function);
/// Adds the numbers of a batch of so many samples to sums over `before` samples.
void add_weighted(std::span<double> sums, double before, std::span<const double> numbers, double samples,
                  const AlignMeans& align);
/// Appends all elements in float64.
void append_elements(const Tensor& value, std::vector<double>& list);

/// The name under which a function is registered; empty if it is not.
std::string name_of_metric_function(const Metric::Finish& function);
/// A Metric of the registered function. Throws Error if there is none, or it takes another number of means.
Metric metric_of(std::vector<Variable> means, std::string_view function, const std::source_location& where);

}  // namespace internal

}  // namespace espalier
