# torchtap::views: what trace, report, stream and explorer share. Users link the views, which link this.
torchtap_component(views DIRECTORY views/program views/text views/watch
                   DESCRIPTION "is what torchtap's views share")
