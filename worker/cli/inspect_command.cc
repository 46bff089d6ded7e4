// rivulet inspect: what a file of a run holds, tensor by tensor.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/daemon/config.h"
#include "common/daemon/run_folder.h"
#include "common/daemon/run_plan.h"
#include "common/daemon/text_file.h"
#include "compression/bit_io.h"
#include "compression/frame_description.h"
#include "models/checkpoint/tensor_file.h"
#include "nlohmann/json.hpp"
#include "worker/cli/commands.h"
#include "worker/cli/progress.h"

namespace rivulet {
namespace {

struct InspectArguments {
  std::string file;
  std::string config;
  int shard = -1;
  bool json = false;
};

// Figures of a list of numbers. Numbers that are not finite are only counted.
struct Statistics {
  double rms = 0;
  double max = 0;  // magnitude
  int64_t zeros = 0;
  int64_t not_finite = 0;
};

Statistics StatisticsOf(absl::Span<const float> values) {
  Statistics s;
  double squares = 0;
  for (const float v : values) {
    if (!std::isfinite(v)) {
      ++s.not_finite;
      continue;
    }
    squares += static_cast<double>(v) * v;
    s.max = std::max(s.max, static_cast<double>(std::fabs(v)));
    s.zeros += v == 0 ? 1 : 0;
  }
  const int64_t finite = static_cast<int64_t>(values.size()) - s.not_finite;
  if (finite > 0) s.rms = std::sqrt(squares / static_cast<double>(finite));
  return s;
}

double Percent(int64_t part, int64_t whole) {
  return whole == 0
             ? 0
             : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

// The safetensors format begins with the length of a JSON object.
bool IsTensorFile(const std::string& bytes) {
  return bytes.size() > 8 && bytes[8] == '{' &&
         LoadWord(bytes.data()) <= bytes.size() - 8;
}

void PrintTensors(const std::string& path, const TensorFile& file) {
  int64_t elements = 0;
  size_t width = 6;
  for (const NamedTensor& t : file.tensors) {
    elements += static_cast<int64_t>(t.values.size());
    width = std::max(width, t.name.size());
  }
  absl::PrintF("%s: %d tensors, %d numbers\n", path, file.tensors.size(),
               elements);
  for (const auto& [key, value] : file.metadata) {
    absl::PrintF("  %s: %s\n", key, value);
  }
  absl::PrintF("%-*s  %-18s %10s %10s %10s %8s\n", width, "tensor", "shape",
               "elements", "rms", "largest", "zeros");
  for (const NamedTensor& t : file.tensors) {
    const Statistics s = StatisticsOf(t.values);
    absl::PrintF("%-*s  %-18s %10d %10.3g %10.3g %6.1f %%", width, t.name,
                 absl::StrCat("[", absl::StrJoin(t.shape, ", "), "]"),
                 t.values.size(), s.rms, s.max,
                 Percent(s.zeros, static_cast<int64_t>(t.values.size())));
    if (s.not_finite > 0) absl::PrintF("  %d not finite", s.not_finite);
    absl::PrintF("\n");
  }
}

nlohmann::json TensorsJson(const std::string& path, const TensorFile& file) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const NamedTensor& t : file.tensors) {
    const Statistics s = StatisticsOf(t.values);
    tensors.push_back({{"name", t.name},
                       {"shape", t.shape},
                       {"elements", t.values.size()},
                       {"rms", s.rms},
                       {"max", s.max},
                       {"zeros", s.zeros},
                       {"not_finite", s.not_finite}});
  }
  return {{"file", path},
          {"kind", "tensors"},
          {"metadata", file.metadata},
          {"tensors", tensors}};
}

// The shard that a recorded file is named for: worker-0-shard-1-push.frames.
int ShardOfName(const std::string& name) {
  const std::string kWord = "shard-";
  const size_t at = name.rfind(kWord);
  if (at == std::string::npos) return -1;
  const size_t begin = at + kWord.size();
  const size_t end = name.find_first_not_of("0123456789", begin);
  int shard = -1;
  const bool is_number =
      absl::SimpleAtoi(name.substr(begin, end - begin), &shard);
  return is_number ? shard : -1;
}

// Which config a file of frames is of, and which of its shards.
struct FrameOrigin {
  std::shared_ptr<const RunPlan> plan;
  int shard = 0;
};

absl::StatusOr<FrameOrigin> OriginOf(const InspectArguments& arguments) {
  const std::filesystem::path file = arguments.file;
  // RUN/frames/step-0000000100/worker-0-shard-1-push.frames
  const std::filesystem::path run =
      std::filesystem::absolute(file).parent_path().parent_path().parent_path();
  const std::string config = arguments.config.empty()
                                 ? RunPaths(run.string()).config()
                                 : arguments.config;
  std::error_code error;  // what cannot be looked at is not there
  if (arguments.config.empty() && !std::filesystem::exists(config, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        arguments.file,
        " is no tensor file, and frames tell nothing without "
        "the config of their run: found no ",
        config, "; allowed: a file below RUN/frames, or --config"));
  }
  RV_ASSIGN_OR_RETURN(const Config loaded, LoadConfig(config, {}));
  FrameOrigin origin;
  auto plan = RunPlan::Create(loaded);
  if (!plan.ok()) return Annotate(plan.status(), config);
  origin.plan = *std::move(plan);
  const int shards = origin.plan->partition().num_shards();
  origin.shard = arguments.shard >= 0 ? arguments.shard
                                      : ShardOfName(file.filename().string());
  if (origin.shard < 0 || origin.shard >= shards) {
    return absl::InvalidArgumentError(
        absl::StrCat(arguments.file, ": ",
                     origin.shard < 0 ? std::string("no shard in the name")
                                      : absl::StrCat("of shard ", origin.shard),
                     "; allowed: --shard 0 to ", shards - 1));
  }
  return origin;
}

// Names and sizes of what a shard's segments are parts of.
std::string NameOf(const FrameOrigin& origin, uint32_t segment) {
  const Segment& s = origin.plan->partition().OfShard(origin.shard)[segment];
  const TensorSpec& spec =
      origin.plan->manifest().parameters[static_cast<size_t>(s.tensor)];
  if (s.size() == spec.num_elements()) return spec.name;
  return absl::StrCat(spec.name, "[", s.begin, ":", s.end, "]");
}

void PrintFrames(const std::string& path, const FrameOrigin& origin,
                 const FrameDescription& frames) {
  const int64_t elements =
      origin.plan->partition().elements_of_shard(origin.shard);
  int64_t count = 0;
  size_t width = 6;
  for (const SegmentUpdate& u : frames.updates) {
    count += static_cast<int64_t>(u.values.size());
    width = std::max(width, NameOf(origin, u.segment).size());
  }
  absl::PrintF(
      "%s: %s for shard %d, %d of %d numbers (%.3g %%), %.4g times less than "
      "32 bits each\n",
      path, HumanBytes(static_cast<double>(frames.num_bytes)), origin.shard,
      count, elements, Percent(count, elements),
      4 * static_cast<double>(elements) /
          static_cast<double>(std::max<int64_t>(frames.num_bytes, 1)));
  absl::PrintF("%-*s %9s %7s %9s %10s  %-9s %-18s %9s %7s %7s\n", width,
               "tensor", "elements", "sent", "density", "rms", "positions",
               "values", "positions", "books", "values");
  size_t next = 0;
  for (const BlockDescription& block : frames.blocks) {
    bool first = true;
    for (const uint32_t segment : block.segments) {
      const int64_t size =
          origin.plan->segment_table(origin.shard).size(segment);
      // A group has no update of a segment of which nothing is sent.
      const bool sent = next < frames.updates.size() &&
                        frames.updates[next].segment == segment;
      const absl::Span<const float> values =
          sent ? absl::MakeConstSpan(frames.updates[next++].values)
               : absl::Span<const float>();
      absl::PrintF("%-*s %9d %7d %7.3g %% %10.3g", width,
                   NameOf(origin, segment), size, values.size(),
                   Percent(static_cast<int64_t>(values.size()), size),
                   StatisticsOf(values).rms);
      if (first) {
        absl::PrintF("  %-9s %-18s %7d B %5d B %5d B", block.positions,
                     block.values, block.position_bytes, block.parameter_bytes,
                     block.value_bytes);
      } else {
        absl::PrintF("  with it");
      }
      absl::PrintF("\n");
      first = false;
    }
  }
}

nlohmann::json FramesJson(const std::string& path, const FrameOrigin& origin,
                          const FrameDescription& frames) {
  nlohmann::json blocks = nlohmann::json::array();
  size_t next = 0;
  for (const BlockDescription& block : frames.blocks) {
    nlohmann::json tensors = nlohmann::json::array();
    for (const uint32_t segment : block.segments) {
      if (next == frames.updates.size() ||
          frames.updates[next].segment != segment) {
        continue;
      }
      const std::vector<float>& values = frames.updates[next++].values;
      const Statistics s = StatisticsOf(values);
      tensors.push_back(
          {{"tensor", NameOf(origin, segment)},
           {"elements", origin.plan->segment_table(origin.shard).size(segment)},
           {"sent", values.size()},
           {"rms", s.rms},
           {"max", s.max}});
    }
    blocks.push_back({{"positions", block.positions},
                      {"values", block.values},
                      {"replaces", block.replaces},
                      {"position_bytes", block.position_bytes},
                      {"parameter_bytes", block.parameter_bytes},
                      {"value_bytes", block.value_bytes},
                      {"tensors", tensors}});
  }
  return {{"file", path},
          {"kind", "frames"},
          {"shard", origin.shard},
          {"bytes", frames.num_bytes},
          {"dense_bytes",
           4 * origin.plan->partition().elements_of_shard(origin.shard)},
          {"blocks", blocks}};
}

absl::Status Inspect(const InspectArguments& arguments) {
  RV_ASSIGN_OR_RETURN(const std::string bytes, ReadTextFile(arguments.file));
  if (bytes.empty()) {
    return absl::DataLossError(absl::StrCat(arguments.file, " is empty"));
  }
  if (IsTensorFile(bytes)) {
    RV_ASSIGN_OR_RETURN(const TensorFile file,
                        ParseTensorFile(bytes, arguments.file));
    if (arguments.json) {
      absl::PrintF("%s\n", TensorsJson(arguments.file, file).dump());
    } else {
      PrintTensors(arguments.file, file);
    }
    return absl::OkStatus();
  }
  RV_ASSIGN_OR_RETURN(const FrameOrigin origin, OriginOf(arguments));
  auto frames = DescribeFrames(bytes, origin.plan->segment_table(origin.shard));
  if (!frames.ok()) return Annotate(frames.status(), arguments.file);
  if (arguments.json) {
    absl::PrintF("%s\n", FramesJson(arguments.file, origin, *frames).dump());
  } else {
    PrintFrames(arguments.file, origin, *frames);
  }
  return absl::OkStatus();
}

}  // namespace

void AddInspectCommand(CLI::App* app, Command* run) {
  CLI::App* command = app->add_subcommand(
      "inspect", "Show what is in a checkpoint, weights or frames");
  auto arguments = std::make_shared<InspectArguments>();
  command
      ->add_option("file", arguments->file,
                   "A .safetensors file, or frames as report.frames_every "
                   "keeps them")
      ->required();
  command->add_option("--config", arguments->config,
                      "Config of the run that frames are of (default: "
                      "config.yaml of the run folder)");
  command
      ->add_option("--shard", arguments->shard,
                   "Shard that frames are for or from (default: by the file's "
                   "name)")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--json", arguments->json, "Print JSON");
  command->footer(
      "Examples:\n"
      "  rivulet inspect runs/a/weights.safetensors\n"
      "  rivulet inspect "
      "runs/a/checkpoints/step-0000000400/worker-0.safetensors\n"
      "  rivulet train configs/quickstart.yaml --run-dir runs/a --set "
      "report.frames_every=100\n"
      "  rivulet inspect "
      "runs/a/frames/step-0000000400/worker-0-shard-1-push.frames");
  command->callback(
      [arguments, run] { *run = [arguments] { return Inspect(*arguments); }; });
}

}  // namespace rivulet
