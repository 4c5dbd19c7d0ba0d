# torchtap::report: what each module costs (views/report/README.md).
torchtap_part(report NEEDS views WANTS torchscript ROOMS views/report
              DESCRIPTION "measures what each module of a model takes in time, memory and work")
