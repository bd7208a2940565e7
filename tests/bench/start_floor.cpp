// Loads the libraries that Espalier uses, and does nothing: the floor of bench_start.
int main() {}
