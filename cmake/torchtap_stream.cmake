# torchtap::stream: tensors to other processes while the model runs (docs/guides/stream.md).
torchtap_component(stream DIRECTORY views/stream NEEDS views
                   DESCRIPTION "sends tensors to other processes while the model runs")
