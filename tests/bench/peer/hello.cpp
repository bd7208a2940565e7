#include <torch/torch.h>

#include <iostream>

int main() { std::cout << "hello " << torch::tensor({1.0f, 2.0f, 3.0f}) << "\n"; }
