# torchtap::monitor: a model watched while it runs (docs/guides/monitor.md).
torchtap_component(monitor DIRECTORY views/monitor NEEDS views
                   DESCRIPTION "watches a model while it runs: rules, drift, and the inputs that led to an alarm")
