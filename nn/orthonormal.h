// Random orthogonal matrices, for initializers.
#pragma once
#include <cstdint>
#include <vector>

namespace espalier::nn::init {

/// A matrix [rows, columns] whose rows or columns, whichever are fewer, are orthogonal and of length `gain`:
/// made of `normal`, as many independent normal numbers. It is evenly distributed over all such matrices
/// (Mezzadri, How to generate random matrices from the classical compact groups, 2007), since the factor R of
/// normal = QR has a positive diagonal.
std::vector<double> orthogonal_matrix(const std::vector<double>& normal, int64_t rows, int64_t columns,
                                      double gain);

}  // namespace espalier::nn::init
