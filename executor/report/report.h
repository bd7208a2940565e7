// The report: a plan as one self-contained page of HTML.
#pragma once
#include <filesystem>
#include <string>

#include "espalier/executor/report/profiler.h"

namespace espalier {

/// `times` may be null; the page then says that nothing was measured.
std::string report_html(const PlanData& plan, const PlanTimes* times);
/// Throws FileError.
void write_report(const std::filesystem::path& file, const PlanData& plan, const PlanTimes* times);

}  // namespace espalier
