#include "data/pickle.h"

#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"

namespace rivulet {
namespace {

// A published batch needs 30,000 stack entries, 10,020 memo entries and 60,000
// instructions.
constexpr size_t kMaxStack = size_t{1} << 16;
constexpr size_t kMaxMemo = size_t{1} << 16;
constexpr int64_t kMaxInstructions = int64_t{1} << 18;

struct Value {
  enum class Kind {
    kMark,
    kNone,
    kBool,
    kInt,
    kString,
    kGlobal,  // text: "module\nname"
    kTuple,
    kList,
    kDict,    // keys and values in turn
    kObject,  // [callable, arguments, state...]: recognized, never built
  };
  Kind kind = Kind::kNone;
  int64_t number = 0;
  absl::string_view text = {};
  size_t items = 0;  // index into Machine::containers_
};
using Kind = Value::Kind;

// The stack machine. Containers are named by index, so that the memo and the
// stack share them as Python's references do, and cycles are harmless.
class Machine {
 public:
  explicit Machine(absl::string_view bytes) : bytes_(bytes) {}

  // The value on top of the stack at the end of the program.
  absl::StatusOr<Value> Run();

  const std::vector<Value>& ItemsOf(const Value& value) const {
    return containers_[value.items];
  }

 private:
  absl::Status Step(uint8_t instruction);
  absl::Status StepContainer(uint8_t instruction);

  absl::Status Error(absl::string_view reason) const {
    return absl::DataLossError(
        absl::StrCat("not a CIFAR-10 pickle: ", reason, " at byte ", at_));
  }

  absl::StatusOr<absl::string_view> Take(size_t count) {
    if (bytes_.size() - next_ < count) {
      return Error(absl::StrCat("cut, ", count, " bytes expected, ",
                                bytes_.size() - next_, " found,"));
    }
    const absl::string_view taken = bytes_.substr(next_, count);
    next_ += count;
    return taken;
  }

  // An unsigned little-endian number of `width` bytes.
  absl::StatusOr<uint32_t> TakeNumber(size_t width) {
    RV_ASSIGN_OR_RETURN(const absl::string_view taken, Take(width));
    uint32_t number = 0;
    for (size_t i = 0; i < width; ++i) {
      number |= uint32_t{static_cast<uint8_t>(taken[i])} << (8 * i);
    }
    return number;
  }

  absl::StatusOr<absl::string_view> TakeLine() {
    const size_t end = bytes_.substr(next_, kMaxLine).find('\n');
    if (end == absl::string_view::npos) return Error("a name without end");
    const absl::string_view line = bytes_.substr(next_, end);
    next_ += end + 1;
    return line;
  }

  absl::Status Push(Value value) {
    if (stack_.size() >= kMaxStack) return Error("too deep a stack");
    stack_.push_back(value);
    return absl::OkStatus();
  }

  absl::Status PushContainer(Kind kind, std::vector<Value> items) {
    containers_.push_back(std::move(items));
    return Push({.kind = kind, .items = containers_.size() - 1});
  }

  // A mark does not count: instructions may not reach below one.
  absl::StatusOr<Value> Pop() {
    if (stack_.empty() || stack_.back().kind == Kind::kMark) {
      return Error("an instruction without operand");
    }
    const Value value = stack_.back();
    stack_.pop_back();
    return value;
  }

  // Pops `count` values, the topmost last.
  absl::StatusOr<std::vector<Value>> PopSeveral(size_t count) {
    std::vector<Value> values(count);
    for (size_t i = count; i > 0; --i) {
      RV_ASSIGN_OR_RETURN(values[i - 1], Pop());
    }
    return values;
  }

  // Pops all down to the last mark, and the mark.
  absl::StatusOr<std::vector<Value>> PopToMark() {
    size_t mark = stack_.size();
    while (mark > 0 && stack_[mark - 1].kind != Kind::kMark) --mark;
    if (mark == 0) return Error("an instruction without mark");
    std::vector<Value> values(stack_.begin() + mark, stack_.end());
    stack_.resize(mark - 1);
    return values;
  }

  absl::Status AppendToTop(Kind kind, const std::vector<Value>& values) {
    if (stack_.empty() || stack_.back().kind != kind ||
        (kind == Kind::kDict && values.size() % 2 != 0)) {
      return Error("items for something that takes none");
    }
    std::vector<Value>& items = containers_[stack_.back().items];
    items.insert(items.end(), values.begin(), values.end());
    return absl::OkStatus();
  }

  absl::Status Remember(uint32_t key) {
    if (stack_.empty()) return Error("nothing to remember");
    if (memo_.size() >= kMaxMemo) return Error("too large a memo");
    memo_[key] = stack_.back();
    return absl::OkStatus();
  }

  absl::Status Recall(uint32_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) return Error("an unknown memo entry");
    return Push(found->second);
  }

  static constexpr size_t kMaxLine = 256;

  const absl::string_view bytes_;
  size_t next_ = 0;  // first byte that was not taken
  size_t at_ = 0;    // of the instruction under way, for messages
  std::vector<Value> stack_;
  std::map<uint32_t, Value> memo_;
  std::vector<std::vector<Value>> containers_;
};

absl::StatusOr<Value> Machine::Run() {
  constexpr uint8_t kStop = '.';
  for (int64_t count = 0; count < kMaxInstructions; ++count) {
    at_ = next_;
    RV_ASSIGN_OR_RETURN(const uint32_t instruction, TakeNumber(1));
    if (count == 0 && instruction != 0x80) return Error("no protocol mark");
    if (instruction == kStop) {
      if (next_ != bytes_.size()) return Error("bytes after the end");
      return Pop();
    }
    RV_RETURN_IF_ERROR(Step(static_cast<uint8_t>(instruction)));
  }
  return Error("too long a program");
}

// Scalars, strings, names and the memo.
absl::Status Machine::Step(uint8_t instruction) {
  switch (instruction) {
    case 0x80: {  // PROTO
      RV_ASSIGN_OR_RETURN(const uint32_t protocol, TakeNumber(1));
      if (protocol == 2) return absl::OkStatus();
      return Error(absl::StrCat("protocol ", protocol, ", expected is 2,"));
    }
    case 'N':
      return Push({.kind = Kind::kNone});
    case 0x88:  // NEWTRUE
    case 0x89:  // NEWFALSE
      return Push({.kind = Kind::kBool, .number = instruction == 0x88});
    case 'K':    // BININT1
    case 'M': {  // BININT2
      RV_ASSIGN_OR_RETURN(const uint32_t number,
                          TakeNumber(instruction == 'K' ? 1 : 2));
      return Push({.kind = Kind::kInt, .number = number});
    }
    case 'J': {  // BININT, signed
      RV_ASSIGN_OR_RETURN(const uint32_t number, TakeNumber(4));
      return Push({.kind = Kind::kInt, .number = static_cast<int32_t>(number)});
    }
    case 'U':    // SHORT_BINSTRING
    case 'T': {  // BINSTRING
      RV_ASSIGN_OR_RETURN(const uint32_t size,
                          TakeNumber(instruction == 'U' ? 1 : 4));
      RV_ASSIGN_OR_RETURN(const absl::string_view text, Take(size));
      return Push({.kind = Kind::kString, .text = text});
    }
    case 'c': {  // GLOBAL: two lines, kept as one text
      const size_t begin = next_;
      RV_RETURN_IF_ERROR(TakeLine().status());
      RV_RETURN_IF_ERROR(TakeLine().status());
      return Push({.kind = Kind::kGlobal,
                   .text = bytes_.substr(begin, next_ - begin - 1)});
    }
    case 'q':    // BINPUT
    case 'r': {  // LONG_BINPUT
      RV_ASSIGN_OR_RETURN(const uint32_t key,
                          TakeNumber(instruction == 'q' ? 1 : 4));
      return Remember(key);
    }
    case 'h':    // BINGET
    case 'j': {  // LONG_BINGET
      RV_ASSIGN_OR_RETURN(const uint32_t key,
                          TakeNumber(instruction == 'h' ? 1 : 4));
      return Recall(key);
    }
    default:
      return StepContainer(instruction);
  }
}

// Lists, tuples, dictionaries and numpy's objects.
absl::Status Machine::StepContainer(uint8_t instruction) {
  switch (instruction) {
    case '(':
      return Push({.kind = Kind::kMark});
    case '}':
      return PushContainer(Kind::kDict, {});
    case ']':
      return PushContainer(Kind::kList, {});
    case ')':
      return PushContainer(Kind::kTuple, {});
    case 't': {  // TUPLE
      RV_ASSIGN_OR_RETURN(std::vector<Value> items, PopToMark());
      return PushContainer(Kind::kTuple, std::move(items));
    }
    case 0x85:    // TUPLE1
    case 0x86:    // TUPLE2
    case 0x87: {  // TUPLE3
      RV_ASSIGN_OR_RETURN(std::vector<Value> items,
                          PopSeveral(instruction - size_t{0x84}));
      return PushContainer(Kind::kTuple, std::move(items));
    }
    case 'a': {  // APPEND
      RV_ASSIGN_OR_RETURN(const std::vector<Value> items, PopSeveral(1));
      return AppendToTop(Kind::kList, items);
    }
    case 'e': {  // APPENDS
      RV_ASSIGN_OR_RETURN(const std::vector<Value> items, PopToMark());
      return AppendToTop(Kind::kList, items);
    }
    case 's': {  // SETITEM
      RV_ASSIGN_OR_RETURN(const std::vector<Value> items, PopSeveral(2));
      return AppendToTop(Kind::kDict, items);
    }
    case 'u': {  // SETITEMS
      RV_ASSIGN_OR_RETURN(const std::vector<Value> items, PopToMark());
      return AppendToTop(Kind::kDict, items);
    }
    case 'R': {  // REDUCE: callable and arguments
      RV_ASSIGN_OR_RETURN(std::vector<Value> items, PopSeveral(2));
      return PushContainer(Kind::kObject, std::move(items));
    }
    case 'b': {  // BUILD: the state of the object below it
      RV_ASSIGN_OR_RETURN(const std::vector<Value> items, PopSeveral(1));
      return AppendToTop(Kind::kObject, items);
    }
    default:
      return Error(absl::StrFormat("unexpected instruction 0x%02x",
                                   unsigned{instruction}));
  }
}

absl::Status Unexpected(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("not a CIFAR-10 pickle: ", what));
}

std::optional<Value> FindInDict(const std::vector<Value>& items,
                                absl::string_view key) {
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i].kind == Kind::kString && items[i].text == key) {
      return items[i + 1];
    }
  }
  return std::nullopt;
}

bool IsCallOf(const Machine& machine, const Value& object,
              absl::string_view name) {
  return object.kind == Kind::kObject &&
         machine.ItemsOf(object)[0].kind == Kind::kGlobal &&
         machine.ItemsOf(object)[0].text == name;
}

// dtype('u1'), whatever its state says of byte order.
bool IsUint8(const Machine& machine, const Value& dtype) {
  if (!IsCallOf(machine, dtype, "numpy\ndtype")) return false;
  const Value& arguments = machine.ItemsOf(dtype)[1];
  if (arguments.kind != Kind::kTuple) return false;
  const std::vector<Value>& items = machine.ItemsOf(arguments);
  return !items.empty() && items[0].kind == Kind::kString &&
         items[0].text == "u1";
}

// _reconstruct(...) with the state (1, (rows, columns), dtype, fortran, bytes).
absl::Status ReadArray(const Machine& machine, const Value& array,
                       PickledBatch* batch) {
  if (!IsCallOf(machine, array, "numpy.core.multiarray\n_reconstruct") ||
      machine.ItemsOf(array).size() != 3 ||
      machine.ItemsOf(array)[2].kind != Kind::kTuple) {
    return Unexpected("its \"data\" is no numpy array");
  }
  const std::vector<Value>& state = machine.ItemsOf(machine.ItemsOf(array)[2]);
  if (state.size() != 5 || state[1].kind != Kind::kTuple ||
      state[3].kind != Kind::kBool || state[4].kind != Kind::kString) {
    return Unexpected("its \"data\" has an unknown state");
  }
  if (!IsUint8(machine, state[2])) {
    return Unexpected("its \"data\" is not of type uint8");
  }
  const std::vector<Value>& shape = machine.ItemsOf(state[1]);
  if (shape.size() != 2 || shape[0].kind != Kind::kInt ||
      shape[1].kind != Kind::kInt || shape[0].number < 0 ||
      shape[1].number < 0) {
    return Unexpected("its \"data\" has not two dimensions");
  }
  batch->rows = shape[0].number;
  batch->columns = shape[1].number;
  batch->column_major = state[3].number != 0;
  batch->data = state[4].text;
  // Both factors are below 2^32, so the product does not overflow.
  if (static_cast<int64_t>(batch->data.size()) !=
      batch->rows * batch->columns) {
    return Unexpected(absl::StrCat("its \"data\" has ", batch->data.size(),
                                   " bytes for a shape of [", batch->rows, ", ",
                                   batch->columns, "]"));
  }
  return absl::OkStatus();
}

absl::Status ReadLabels(const Machine& machine, const Value& list,
                        PickledBatch* batch) {
  if (list.kind != Kind::kList) return Unexpected("its \"labels\" are no list");
  for (const Value& label : machine.ItemsOf(list)) {
    if (label.kind != Kind::kInt) {
      return Unexpected(
          absl::StrCat("label ", batch->labels.size(), " is not a number"));
    }
    batch->labels.push_back(label.number);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PickledBatch> ReadPickledBatch(absl::string_view bytes) {
  Machine machine(bytes);
  RV_ASSIGN_OR_RETURN(const Value root, machine.Run());
  if (root.kind != Kind::kDict) return Unexpected("it holds no dictionary");
  const std::vector<Value>& items = machine.ItemsOf(root);
  const std::optional<Value> data = FindInDict(items, "data");
  const std::optional<Value> labels = FindInDict(items, "labels");
  if (!data.has_value() || !labels.has_value()) {
    return Unexpected("it lacks \"data\" or \"labels\"");
  }
  PickledBatch batch;
  RV_RETURN_IF_ERROR(ReadArray(machine, *data, &batch));
  RV_RETURN_IF_ERROR(ReadLabels(machine, *labels, &batch));
  return batch;
}

}  // namespace rivulet
