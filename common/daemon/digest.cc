#include "common/daemon/digest.h"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errno_status.h"

namespace rivulet {
namespace {

constexpr size_t kBlockBytes = 1 << 20;

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    RV_CHECK(context_ != nullptr);
    RV_CHECK_EQ(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr), 1);
  }

  void Add(const char* bytes, size_t size) {
    RV_CHECK_EQ(EVP_DigestUpdate(context_.get(), bytes, size), 1);
  }

  std::string Hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    RV_CHECK_EQ(EVP_DigestFinal_ex(context_.get(), digest, &size), 1);
    return absl::BytesToHexString(
        absl::string_view(reinterpret_cast<const char*>(digest), size));
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

}  // namespace

std::string Sha256Hex(absl::string_view bytes) {
  Sha256 sha;
  sha.Add(bytes.data(), bytes.size());
  return sha.Hex();
}

absl::StatusOr<std::string> Sha256HexOfFile(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return absl::NotFoundError(ErrnoMessage(errno, path, "open"));
  }
  Sha256 sha;
  std::vector<char> block(kBlockBytes);
  while (in) {
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    sha.Add(block.data(), static_cast<size_t>(in.gcount()));
  }
  if (!in.eof()) {
    return absl::DataLossError(ErrnoMessage(errno, path, "read"));
  }
  return sha.Hex();
}

std::string NewJobId() {
  unsigned char bytes[16];
  RV_CHECK_EQ(RAND_bytes(bytes, sizeof(bytes)), 1)
      << "the operating system gives no random bytes";
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes), sizeof(bytes)));
}

bool IsJobId(absl::string_view text) {
  return text.size() == 32 && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

}  // namespace rivulet
