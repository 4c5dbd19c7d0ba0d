# torchtap::compare: the first place where two programs differ (docs/guides/comparing-a-port.md).
torchtap_component(compare DIRECTORY views/compare NEEDS views SUGGESTS python3-torchtap
                   DESCRIPTION "finds the first place where two programs differ")
