// ONNX files: esp::onnx::load and esp::onnx::save. A library of its own, espalier::onnx, which espalier.h
// does not include.
#pragma once
#include "espalier/espalier.h"
#include "espalier/nn/onnx/model.h"
#include "espalier/nn/onnx/save.h"
