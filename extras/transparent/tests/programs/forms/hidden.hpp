// Types in an unnamed namespace: the compiler assumes that it sees all objects and may replace virtual calls
// by direct ones.
namespace {
struct ShapeImpl : torch::nn::Module {
  virtual T scale(T x) { return x * 2; }
  virtual T forward(T x) { return scale(x) + 1; }
};
TORCH_MODULE(Shape);
struct CircleImpl : ShapeImpl {
  T scale(T x) override { return x * 3; }
};
TORCH_MODULE(Circle);
struct SquareImpl final : ShapeImpl {
  T scale(T x) override { return x * 5; }
  T forward(T x) override { return scale(x) + 100; }
};
TORCH_MODULE(Square);
struct PureImpl : torch::nn::Module {
  virtual T forward(T x, int times = 2) = 0;
  virtual int id() const = 0;
};
TORCH_MODULE(Pure);
struct ConcreteImpl : PureImpl {
  T forward(T x, int times = 7) override { return x * times; }
  int id() const override { return 11; }
};
TORCH_MODULE(Concrete);
struct LeftImpl : virtual torch::nn::Module {
  virtual int left() { return 1; }
};
struct RightImpl : virtual torch::nn::Module {
  virtual int right() { return 2; }
  double padding = 3;
};
struct DiamondImpl : RightImpl, LeftImpl {
  int left() override { return 10; }
  T forward(T x) { return x * left() + right() + padding; }
};
TORCH_MODULE(Diamond);
}  // namespace

T through_base(Shape& shape, T x) {
  shape->train();
  return shape->forward(x) + shape(x) + shape->scale(x);
}

void run() {
  const T x = torch::ones({1});
  Shape shape;
  Circle circle;
  Square square;
  Shape as_circle(std::shared_ptr<ShapeImpl>(circle.ptr())),
      as_square(std::shared_ptr<ShapeImpl>(square.ptr()));
  Shape as_other(std::shared_ptr<ShapeImpl>(std::make_shared<SquareImpl>()));
  std::cout << through_base(shape, x) << through_base(as_circle, x) << through_base(as_square, x)
            << through_base(as_other, x) << circle->forward(x) << square->forward(x) << square(x) << "\n";
  Pure pure(std::shared_ptr<PureImpl>(std::make_shared<ConcreteImpl>()));
  Concrete concrete;
  std::cout << pure->forward(x) << pure(x) << pure->forward(x, 3) << pure->id() << concrete->forward(x)
            << concrete->id() << "\n";
  Diamond diamond;
  std::cout << diamond->forward(x) << diamond->left() << diamond->right() << diamond->padding
            << diamond->name() << "\n";
  struct InsideImpl : torch::nn::Module {
    virtual T forward(T x) { return x + 1; }
  };
  struct DerivedImpl : InsideImpl {
    T forward(T x) override { return x + 2; }
  };
  TORCH_MODULE(Inside);
  Inside inside, derived(std::shared_ptr<InsideImpl>(std::make_shared<DerivedImpl>()));
  std::cout << inside->forward(x) << derived->forward(x) << derived(x) << "\n";
}
