# torchtap::trace: every operation of a forward pass (docs/guides/trace.md).
torchtap_part(trace NEEDS views WANTS torchscript ROOMS views/trace SUGGESTS graphviz
              DESCRIPTION "logs every operation of a forward pass, as a table, a picture or files")
