// The kernels of pages as one module. Expects NAME, ELEMENT and PARTS, and a namespace of its own inside of
// `on_host`; included for each of them.
#include "kernels_on_host.inc"

inline const bool known =
    torchtap_test::fake::add_module(NAME, PARTS,
                                    {[](Index grid, Index block, const void* one) {
                                       launch(add_one, grid, block, *static_cast<const One*>(one));
                                     },
                                     [](Index grid, Index block, const void* all) {
                                       launch(add_many, grid, block, *static_cast<const Many*>(all));
                                     },
                                     [](Index block, long long* page, long long* to) {
                                       launch(take_page, {1, 1}, block, page, to);
                                     },
                                     sizeof(One), sizeof(Many)});
