// Entering and leaving scopes.
#include <torchtap/operations/detail/watcher.hpp>
#include <torchtap/operations/scope.hpp>

namespace torchtap::operations {

using base::operations_key;

Scope::Scope(Callback callback, Level level) {
  TORCH_CHECK_VALUE(callback != nullptr, "operations::Scope: the callback is empty; pass a function.");
  detail::register_fallback();
  watcher_ = std::make_shared<detail::Watcher>();
  watcher_->callback = std::move(callback);
  watcher_->level = level;
  auto watchers = std::make_shared<detail::Watchers>();
  watchers->list.push_back(watcher_);
  watchers->leaf = level == Level::leaf;
  if (const detail::Watchers* around = detail::Watchers::current(); around != nullptr) {
    for (const auto& watcher : around->list) {
      if (!watcher->active.load(std::memory_order_relaxed)) continue;  // its scope could not be left
      watchers->list.push_back(watcher);
      watchers->leaf = watchers->leaf || watcher->level == Level::leaf;
    }
  }
  entered_ = std::make_unique<detail::Entered>(std::move(watchers));
}

Scope::~Scope() {
  watcher_->active.store(false);
}

Unseen::Unseen() : was_(c10::impl::tls_is_dispatch_key_excluded(operations_key)) {
  c10::impl::tls_set_dispatch_key_excluded(operations_key, true);
}

Unseen::~Unseen() {
  c10::impl::tls_set_dispatch_key_excluded(operations_key, was_);
}

}  // namespace torchtap::operations
