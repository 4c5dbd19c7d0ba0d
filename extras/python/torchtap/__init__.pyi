# What `import torchtap` offers, for type checkers: __init__.py finds it when it is asked for.
from torchtap import export as export
from torchtap import hooks as hooks
from torchtap import recorders as recorders
from torchtap import reductions as reductions
from torchtap import rows as rows
from torchtap import selectors as selectors
from torchtap import storage as storage
from torchtap import stream as stream
from torchtap.recorders import *
from torchtap.reductions import *
from torchtap.selectors import *
from torchtap.storage import *
from torchtap.views.compare import *
from torchtap.views.explorer import *
from torchtap.views.monitor import *
from torchtap.views.report import *
from torchtap.views.stream import *
from torchtap.views.trace import *

__version__: str
