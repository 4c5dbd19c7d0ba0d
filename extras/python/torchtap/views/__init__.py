"""The views of a `torch.nn.Module`, over the C++ library. Each is there when its component was built:

    report    torchtap.summary, torchtap.report, torchtap.Report
    trace     torchtap.trace, torchtap.Tracer, torchtap.load_trace
    compare   torchtap.compare
    explorer  torchtap.explore
    monitor   torchtap.monitor
    stream    torchtap.publish

`torchtap.NAME` has them.
"""
