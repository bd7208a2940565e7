// The report: a plan as one page of HTML, with nothing outside the file.
#pragma once
#include <filesystem>
#include <string>

#include "espalier/executor/profiler.h"

namespace espalier {

/// `times` may be null: then the page says that nothing has been measured.
std::string report_html(const PlanData& plan, const PlanTimes* times);
/// Throws FileError.
void write_report(const std::filesystem::path& file, const PlanData& plan, const PlanTimes* times);

}  // namespace espalier
