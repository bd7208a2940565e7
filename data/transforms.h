// Augmentation of images: all of data/transforms/.
#pragma once
#include "espalier/data/transforms/color.h"
#include "espalier/data/transforms/erase.h"
#include "espalier/data/transforms/geometry.h"
#include "espalier/data/transforms/normalize.h"
#include "espalier/data/transforms/resize.h"
#include "espalier/data/transforms/transform.h"
