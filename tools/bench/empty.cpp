// A program that only loads LibTorch, and ends: what no command that uses LibTorch can be faster than.
int main() {}
