// Begun by mpirun: whether the library for MPI is found.
#include <espalier/espalier.h>

#include <iostream>

int main() {
  namespace distributed = espalier::distributed;
  try {
    distributed::world()->barrier();
  } catch (const espalier::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return distributed::size() == 2 ? 0 : 1;
}
