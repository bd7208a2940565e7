#include <espalier/espalier.h>

#include <iostream>

int main() { std::cout << "hello " << espalier::tensor({1.0f, 2.0f, 3.0f}) << "\n"; }
