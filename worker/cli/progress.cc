#include "worker/cli/progress.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/daemon/run_folder.h"
#include "common/daemon/text_file.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using Phase = v1::RunStatus;

// Children that this process has just started need no mention for this long.
constexpr absl::Duration kUsualJoinTime = absl::Seconds(10);

bool IsTraining(const v1::RunStatus& status) {
  return status.phase() == Phase::TRAINING ||
         status.phase() == Phase::FINISHING;
}

bool HasBegun(const v1::RunStatus& status) {
  return IsTraining(status) || status.phase() == Phase::COMPLETE;
}

// Two digits after the point up to 10, one up to 100, none above.
std::string Ratio(double ratio) {
  if (ratio < 10) return absl::StrFormat("%.2f", ratio);
  if (ratio < 100) return absl::StrFormat("%.1f", ratio);
  return absl::StrFormat("%.0f", ratio);
}

}  // namespace

std::string HumanBytes(double bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B",  "kB", "MB",
                                                 "GB", "TB", "PB"};
  size_t unit = 0;
  // 999.5 would print as 1000.
  while (bytes >= 999.5 && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  if (unit == 0) return absl::StrFormat("%.0f B", bytes);
  const int decimals = bytes < 9.995 ? 2 : bytes < 99.95 ? 1 : 0;
  return absl::StrFormat("%.*f %s", decimals, bytes, kUnits[unit]);
}

std::string HumanDuration(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(seconds));
  const int64_t hours = total / 3600;
  const int64_t minutes = total / 60 % 60;
  if (hours == 0) return absl::StrFormat("%d:%02d", minutes, total % 60);
  return absl::StrFormat("%d:%02d:%02d", hours, minutes, total % 60);
}

std::string ProgressLine(const v1::RunStatus& status) {
  std::string line = absl::StrFormat("epoch %.2f  step %d/%d", status.epoch(),
                                     status.step(), status.total_steps());
  // Before the first report there is nothing to tell.
  if (status.samples_per_second() <= 0) return line;
  absl::StrAppendFormat(&line, "  loss %.4f  accuracy %.1f %%",
                        status.train_loss(), 100 * status.train_accuracy());
  if (status.test_accuracy() >= 0) {
    absl::StrAppendFormat(&line, "  test %.2f %%",
                          100 * status.test_accuracy());
  }
  absl::StrAppendFormat(&line, "  %.0f samples/s", status.samples_per_second());
  if (status.ratio() > 0) {
    absl::StrAppend(&line, "  ratio ", Ratio(status.ratio()), "x");
  }
  if (status.seconds_left() >= 0) {
    absl::StrAppend(&line, "  ", HumanDuration(status.seconds_left()), " left");
  }
  return line;
}

std::string ResumeLine(const v1::RunStatus& status) {
  if (status.first_step() == 0) {
    return "nothing to resume: training begins at step 0";
  }
  return absl::StrCat("resuming from step ", status.first_step(), " of ",
                      status.total_steps());
}

std::string ShellCommand(const std::vector<std::string>& words) {
  constexpr char kPlain[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
      "-_./=:,+@%";
  return absl::StrJoin(
      words, " ", [&](std::string* out, const std::string& word) {
        if (!word.empty() &&
            word.find_first_not_of(kPlain) == std::string::npos) {
          out->append(word);
          return;
        }
        absl::StrAppend(out, "'", absl::StrReplaceAll(word, {{"'", "'\\''"}}),
                        "'");
      });
}

absl::StatusOr<std::string> ClosingLines(const std::string& summary_json,
                                         const std::string& run_dir,
                                         const std::string& resume_command) {
  const nlohmann::json summary =
      nlohmann::json::parse(summary_json, nullptr, /*allow_exceptions=*/false);
  if (!summary.is_object()) {
    return absl::DataLossError(
        absl::StrCat(run_dir, "/summary.json is not a JSON object"));
  }
  const auto number = [&](const char* key) {
    const auto found = summary.find(key);
    return found != summary.end() && found->is_number() ? found->get<double>()
                                                        : 0.0;
  };
  const double up = number("bytes_up");
  const double down = number("bytes_down");
  const double dense = number("dense_bytes_up") + number("dense_bytes_down");

  std::string text;
  const bool complete = summary.value("status", "") == "complete";
  if (complete) {
    absl::StrAppendFormat(&text, "test accuracy  %.2f %%\n",
                          100 * number("test_accuracy"));
  } else {
    absl::StrAppendFormat(&text, "stopped        after step %d\n",
                          static_cast<int64_t>(number("steps")));
  }
  absl::StrAppend(&text, "training       ", HumanDuration(number("seconds")),
                  absl::StrFormat(" (%.0f samples/s, %d steps)\n",
                                  number("samples_per_second"),
                                  static_cast<int64_t>(number("steps"))));
  absl::StrAppend(&text, "traffic        ", HumanBytes(up), " up, ",
                  HumanBytes(down), " down; dense would be ", HumanBytes(dense),
                  ": ", Ratio(number("ratio")),
                  " times less (whole run, both ways, on the wire)\n");
  absl::StrAppend(&text, "files          ", run_dir, ": ",
                  complete ? "weights.safetensors" : "checkpoints/",
                  ", summary.json, metrics.csv, logs/\n");
  if (!complete) {
    absl::StrAppend(&text, "to go on       ", resume_command, "\n");
  }
  return text;
}

std::string ResumeCommand(const std::string& called_as,
                          const std::string& command, const std::string& config,
                          const std::string& run_dir,
                          const std::vector<std::string>& overrides) {
  std::vector<std::string> words = {called_as, command, config};
  if (!run_dir.empty()) words.insert(words.end(), {"--run-dir", run_dir});
  for (const std::string& text : overrides) {
    words.insert(words.end(), {"--set", text});
  }
  words.push_back("--resume");
  return ShellCommand(words);
}

absl::Status PrintClosing(const absl::Status& result,
                          const std::string& run_dir,
                          const std::string& earlier_summary,
                          const std::string& resume_command) {
  const std::string summary =
      ReadTextFile(RunPaths(run_dir).summary()).value_or("");
  if (!result.ok() && summary == earlier_summary) return result;
  RV_ASSIGN_OR_RETURN(const std::string closing,
                      ClosingLines(summary, run_dir, resume_command));
  std::fputs(closing.c_str(), stdout);
  std::fflush(stdout);
  return result;
}

ProgressPrinter::ProgressPrinter(std::FILE* out, bool terminal,
                                 absl::Duration plain_interval, bool resume,
                                 std::string prefix)
    : out_(out),
      terminal_(terminal),
      plain_interval_(plain_interval),
      say_where_(resume),
      prefix_(std::move(prefix)) {}

void ProgressPrinter::Show(const v1::RunStatus& status, absl::Time now) {
  const bool phase_changed = status.phase() != phase_;
  const bool evaluated = status.evaluations() > evaluations_;
  phase_ = status.phase();
  evaluations_ = status.evaluations();

  first_ = std::min(first_, now);
  for (; notices_ < status.notices_size(); ++notices_) {
    Say(absl::StrCat("note: ", status.notices(notices_)));
  }
  // A short run may be over before its training was seen.
  if (say_where_ && HasBegun(status)) {
    Say(ResumeLine(status));
    say_where_ = false;
  }
  if (!IsTraining(status)) {
    const bool unusual =
        status.phase() == Phase::WAITING && now - first_ >= kUsualJoinTime;
    if (unusual && !status.message().empty() && status.message() != message_) {
      Say(status.message());
      message_ = status.message();
    }
    return;
  }
  if (terminal_) {
    const std::string line = absl::StrCat(prefix_, ProgressLine(status));
    std::fprintf(out_, "\r%s", line.c_str());
    for (size_t i = line.size(); i < drawn_; ++i) std::fputc(' ', out_);
    drawn_ = line.size();
    std::fflush(out_);
    return;
  }
  if (phase_changed || evaluated || now - last_ >= plain_interval_) {
    std::fprintf(out_, "%s%s\n", prefix_.c_str(), ProgressLine(status).c_str());
    std::fflush(out_);
    last_ = now;
  }
}

void ProgressPrinter::Say(const std::string& line) {
  Finish();
  std::fprintf(out_, "%s%s\n", prefix_.c_str(), line.c_str());
  std::fflush(out_);
}

void ProgressPrinter::Finish() {
  if (drawn_ == 0) return;
  std::fputc('\n', out_);
  std::fflush(out_);
  drawn_ = 0;
}

}  // namespace rivulet
