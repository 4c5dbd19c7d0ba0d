# torchtap::trace: every operation of a forward pass (docs/guides/trace.md).
torchtap_component(trace DIRECTORY views/trace NEEDS views SUGGESTS graphviz
                   DESCRIPTION "logs every operation of a forward pass, as a table, a picture or files")
