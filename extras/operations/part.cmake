# torchtap::operations: every call of an operation (extras/operations/README.md).
torchtap_part(operations ROOMS operations
              DESCRIPTION "calls a function for each operation that LibTorch runs")
