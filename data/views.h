// Views of datasets: all of data/views/.
#pragma once
#include "espalier/data/views/by_length.h"
#include "espalier/data/views/cache.h"
#include "espalier/data/views/combine.h"
#include "espalier/data/views/map.h"
#include "espalier/data/views/mix.h"
#include "espalier/data/views/padded.h"
#include "espalier/data/views/sample.h"
#include "espalier/data/views/select.h"
#include "espalier/data/views/split.h"
