// Every public operation, by subject in ops/functions/. Operands are Variables, Tensors or numbers; a number
// takes the dtype of the other operand. Two operands are broadcast as in NumPy and must have one dtype
// (cast() changes it). Negative axes count from the end. All throw ShapeError or TypeError with the op, the
// shapes or dtypes, and the line of the call.
#pragma once
#include "espalier/ops/functions/activation.h"
#include "espalier/ops/functions/compare.h"
#include "espalier/ops/functions/creation.h"
#include "espalier/ops/functions/decompositions.h"
#include "espalier/ops/functions/distance.h"
#include "espalier/ops/functions/indexing.h"
#include "espalier/ops/functions/layout.h"
#include "espalier/ops/functions/linear_algebra.h"
#include "espalier/ops/functions/loss.h"
#include "espalier/ops/functions/math.h"
#include "espalier/ops/functions/products.h"
#include "espalier/ops/functions/random.h"
#include "espalier/ops/functions/reduction.h"
#include "espalier/ops/functions/sampling.h"
