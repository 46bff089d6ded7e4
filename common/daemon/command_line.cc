#include "common/daemon/command_line.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/daemon/exit_codes.h"

namespace rivulet {

std::optional<int> ParseCommandLine(CLI::App* app, const std::string& program,
                                    int argc, const char* const* argv) {
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app->exit(e);  // prints what was asked
    return ReportEnd(program, absl::InvalidArgumentError(absl::StrCat(
                                  e.what(), " (--help says more)")));
  }
  return std::nullopt;
}

}  // namespace rivulet
