# torchtap::trace: every operation of a forward pass (views/trace/README.md).
torchtap_part(trace NEEDS views WANTS torchscript ROOMS views/trace SUGGESTS graphviz
              DESCRIPTION "logs every operation of a forward pass, as a table, a picture or files")
