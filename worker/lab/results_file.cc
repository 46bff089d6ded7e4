#include "worker/lab/results_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/errno_status.h"
#include "common/base/status_macros.h"
#include "common/daemon/run_folder.h"
#include "common/daemon/text_file.h"

namespace rivulet {
namespace {

struct Column {
  const char* name;
  const char* key;       // of summary.json
  bool required = true;  // else empty where the summary has none
};

// After arm, grid keys and seed; `settings` comes before weights_sha256.
constexpr std::array<Column, 18> kColumns = {{
    {"epochs", "epochs"},
    {"steps", "steps"},
    {"workers", "workers"},
    // Of models that classify, and of language models.
    {"test_accuracy", "test_accuracy", false},
    {"test_perplexity", "test_perplexity", false},
    {"train_loss", "train_loss", false},
    {"bytes_up", "bytes_up"},
    {"bytes_down", "bytes_down"},
    {"payload_up", "payload_up"},
    {"payload_down", "payload_down"},
    {"ratio", "ratio"},
    {"ratio_steady_up", "ratio_steady_up"},
    {"seconds", "seconds"},
    {"samples_per_second", "samples_per_second"},
    {"settings", nullptr},
    {"weights_sha256", "weights_sha256"},
    {"version", "version"},
    {"host", "host"},
}};

std::string Quoted(absl::string_view text) {
  return absl::StrCat(
      "\"",
      absl::StrReplaceAll(text, {{"\"", "\"\""}, {"\n", " "}, {"\r", " "}}),
      "\"");
}

// Quotes where there have to be.
std::string Field(absl::string_view text) {
  return text.find_first_of(",\"\n\r") == text.npos ? std::string(text)
                                                    : Quoted(text);
}

// Closes what it is given.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

absl::StatusOr<std::string> ResultsLine(const RunKey& key,
                                        const std::string& settings,
                                        const std::string& summary_json) {
  const nlohmann::json summary =
      nlohmann::json::parse(summary_json, nullptr, /*allow_exceptions=*/false);
  if (!summary.is_object()) {
    return absl::DataLossError("summary.json is not a JSON object");
  }
  std::vector<std::string> fields = {Field(key.arm)};
  for (const std::string& value : key.grid) fields.push_back(Field(value));
  fields.push_back(absl::StrCat(key.seed));
  for (const Column& column : kColumns) {
    if (column.key == nullptr) {
      fields.push_back(Quoted(settings));
      continue;
    }
    const auto found = summary.find(column.key);
    if (found == summary.end() || found->is_null()) {
      if (column.required) {
        return absl::DataLossError(
            absl::StrCat("summary.json has no ", column.key));
      }
      fields.emplace_back();
    } else {
      fields.push_back(Field(found->is_string() ? found->get<std::string>()
                                                : found->dump()));
    }
  }
  return absl::StrJoin(fields, ",");
}

std::string ResultsHeader(const std::vector<std::string>& grid_keys) {
  std::vector<std::string> names = {"arm"};
  names.insert(names.end(), grid_keys.begin(), grid_keys.end());
  names.emplace_back("seed");
  for (const Column& column : kColumns) names.emplace_back(column.name);
  return absl::StrJoin(names, ",");
}

std::vector<std::string> SplitCsvLine(absl::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') {
      // Two quotes within quotes are one.
      if (quoted && i + 1 < line.size() && line[i + 1] == '"') {
        fields.back() += line[++i];
      } else {
        quoted = !quoted;
      }
    } else if (line[i] == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += line[i];
    }
  }
  return fields;
}

absl::StatusOr<ResultsFile> ResultsFile::Open(
    const std::string& path, const std::vector<std::string>& grid_keys) {
  ResultsFile file(path, ResultsHeader(grid_keys));
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) {
    if (absl::IsNotFound(text.status())) return file;
    return AsRunFolderError(text.status());
  }
  // A line without its end was cut, and its run has none.
  const absl::string_view whole(text->data(), text->rfind('\n') + 1);
  if (whole.empty()) return file;
  const std::vector<absl::string_view> lines =
      absl::StrSplit(absl::StripSuffix(whole, "\n"), '\n');
  if (lines[0] != file.header_) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": found the header ", lines[0], "; this experiment's is ",
        file.header_, ": name another file"));
  }
  const size_t columns = SplitCsvLine(file.header_).size();
  // Where `settings` is, from the end.
  size_t settings_column = columns - 1;
  for (size_t i = kColumns.size(); kColumns[i - 1].key != nullptr; --i) {
    --settings_column;
  }
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> fields = SplitCsvLine(lines[i]);
    RunKey key;
    if (fields.size() != columns ||
        !absl::SimpleAtoi(fields[1 + grid_keys.size()], &key.seed)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", i + 1, ": found a line of ", fields.size(),
                       " fields that is no run's; allowed: ", columns,
                       " as in the header, with a whole number as seed"));
    }
    key.arm = fields[0];
    key.grid.assign(
        fields.begin() + 1,
        fields.begin() + 1 + static_cast<std::ptrdiff_t>(grid_keys.size()));
    file.settings_[key] = fields[settings_column];
  }
  return file;
}

const std::string* ResultsFile::FindSettings(const RunKey& key) const {
  const auto it = settings_.find(key);
  return it == settings_.end() ? nullptr : &it->second;
}

absl::Status ResultsFile::Append(const RunKey& key, const std::string& settings,
                                 const std::string& line) {
  const std::filesystem::path folder =
      std::filesystem::path(path_).parent_path();
  if (!folder.empty()) RV_RETURN_IF_ERROR(MakeFolders(folder));
  const Descriptor file(
      open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (file.get() < 0) return ErrnoToStatus(errno, path_, "open");
  if (flock(file.get(), LOCK_EX) != 0) {
    return ErrnoToStatus(errno, path_, "lock");
  }
  RV_ASSIGN_OR_RETURN(const std::string old, ReadToEnd(file.get(), path_));
  const size_t whole = old.rfind('\n') + 1;  // 0 where there is none
  if (whole < old.size() &&
      ftruncate(file.get(), static_cast<off_t>(whole)) != 0) {
    return ErrnoToStatus(errno, path_, "cut off a half line");
  }
  const std::string bytes =
      absl::StrCat(whole == 0 ? absl::StrCat(header_, "\n") : "", line, "\n");
  const ssize_t wrote = write(file.get(), bytes.data(), bytes.size());
  if (wrote != static_cast<ssize_t>(bytes.size())) {
    const int error = wrote < 0 ? errno : ENOSPC;
    (void)!ftruncate(file.get(), static_cast<off_t>(whole));
    return ErrnoToStatus(error, path_, "write");
  }
  if (fsync(file.get()) != 0) return ErrnoToStatus(errno, path_, "sync");
  settings_[key] = settings;
  return absl::OkStatus();
}

}  // namespace rivulet
