#include "espalier/data/files/byte_source.h"

#include "espalier/core/error.h"

namespace espalier::data {

void ByteSource::fail(const std::string& reason) const { throw FileError(name_ + " " + reason); }

}  // namespace espalier::data
