// What a dataset reads, kept.
#pragma once
#include <filesystem>
#include <source_location>
#include <string>

#include "espalier/data/views/row_view.h"

namespace espalier::data {

/// All rows, read once, now, in memory; a device may keep a copy of them. Augmentation below it happens once:
/// as `Dataset::read` reads, for epoch 0. Open sizes become those of the longest row. Throws what reading
/// throws.
DatasetPtr cache(DatasetPtr dataset, std::source_location where = std::source_location::current());

/// The same in a file, which is mapped: the system reads the pages that are used, and gives them up where
/// memory is short. The file is written if it is not there, or was written for another `key`, other columns
/// or another number of rows; that takes the memory of all rows once. Give another key whenever rows read
/// otherwise. Throws FileError: it cannot be written, or is another file than a cache; and what reading
/// throws.
DatasetPtr cache(DatasetPtr dataset, const std::filesystem::path& file, const std::string& key = "",
                 std::source_location where = std::source_location::current());

}  // namespace espalier::data
