# torchtap::rows: dumps that are datasets, rows of tensors with what is beside them (extras/rows/README.md).
torchtap_part(rows ROOMS rows
              DESCRIPTION "keeps rows of tensors with labels and ids beside them, and reads them as datasets")
