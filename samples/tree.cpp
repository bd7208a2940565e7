// The tree of Variables: building, printing and cutting it.
#include <espalier/espalier.h>

#include <iostream>
namespace esp = espalier;

int main() {
  // Every operation computes immediately, and keeps its operands.
  esp::Variable a = esp::variable({2.0f});
  esp::Variable b = esp::variable({3.0f});
  esp::Variable c = a + b;
  std::cout << a << " + " << b << " = " << c << "\n";

  esp::Variable d = c + esp::tensor({1.5f});  // a Tensor in an expression is a constant
  std::cout << "d = c + 1.5 = " << d << ", made of:\n";
  d.print_tree();

  // Gradients are nodes of the same tree, tagged Backward.
  d.backward();
  std::cout << "\nafter backward(), dd/da = " << d.gradient(a) << ", dd/db = " << d.gradient(b) << ":\n";
  d.print_tree();

  // A diamond: v is used twice, but printed and evaluated once.
  esp::Variable v = esp::variable({1.5f}), w = esp::variable({2.5f}), o = esp::variable({3.5f});
  esp::Variable k = (v + w) + (v + o);
  std::cout << "\nk = (v + w) + (v + o) = " << k << ", dk/dv = " << k.gradient(v) << ":\n";
  k.print_tree();

  // Other uses of v are not part of this tree: it contains only the operands of its root.
  esp::Variable small = v + esp::tensor({-2.0f});
  std::cout << "\nv - 2 = " << small << ":\n";
  small.print_tree();

  // disconnect() keeps the value and drops the tree below it.
  k.disconnect();
  std::cout << "\nk, disconnected, is still " << k << ":\n";
  k.print_tree();

  // Gradients are part of the tree and have gradients, too: the second derivative of t³ at 2 is 6t = 12.
  esp::Variable t = esp::variable({2.0f});
  esp::Variable cube = t * t * t;
  std::cout << "\n(t³)'' at 2 = " << cube.gradient(t).gradient(t) << "\n";
}
