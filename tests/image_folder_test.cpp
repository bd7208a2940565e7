#include "espalier/data/image_folder.h"

#include <boost/test/unit_test.hpp>
#include <fstream>

#include "dataset_values.h"
#include "espalier/core/error.h"
#include "espalier/data/batches.h"
#include "espalier/data/image.h"
#include "espalier/data/transforms.h"
#include "espalier/data/workers/loader.h"
#include "file_samples.h"
#include "temporary_folder.h"

using namespace espalier;
using namespace espalier::testing;
using data::ImageFolder;
namespace fs = std::filesystem;

namespace {

struct Folder {
  /// An image of one color.
  void image(const std::string& name, int color, const Shape& shape = {3, 4, 5}) const {
    fs::create_directories((folder / name).parent_path());
    data::write_image(folder / name, full(shape, color));
  }
  void file(const std::string& name, const std::string& bytes) const {
    fs::create_directories((folder / name).parent_path());
    folder.write(name, bytes);
  }
  std::vector<std::string> names(const ImageFolder& images) const {
    std::vector<std::string> all;
    for (const fs::path& path : images.files())
      all.push_back(path.lexically_relative(folder.path()).string());
    return all;
  }
  TemporaryFolder folder;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(image_folders, Folder)

BOOST_AUTO_TEST_CASE(classes_and_files_in_order) {
  image("dog/b.png", 10);
  image("dog/a.jpg", 20);
  image("cat/z.jpeg", 30);
  image("cat/deep/er/1.png", 40);
  image("cat/a.png", 50, {1, 4, 5});
  fs::rename(folder / "cat/a.png", folder / "cat/a.PNG");
  image("Zebra/x.png", 60);
  file("cat/notes.txt", "no image");
  file("list.txt", "no class");
  const ImageFolder images(folder.path());
  BOOST_TEST(images.classes() == (std::vector<std::string>{"Zebra", "cat", "dog"}),
             boost::test_tools::per_element());
  BOOST_TEST(names(images) == (std::vector<std::string>{"Zebra/x.png", "cat/a.PNG", "cat/z.jpeg",
                                                        "cat/deep/er/1.png", "dog/a.jpg", "dog/b.png"}),
             boost::test_tools::per_element());
  BOOST_TEST(images.labels() == (std::vector<int64_t>{0, 1, 1, 1, 2, 2}), boost::test_tools::per_element());
  BOOST_TEST((images.specs()[0] == Spec{DType::uint8, {6, 3, 4, 5}}));
  BOOST_TEST((images.specs()[1] == Spec{int64, {6}}));
  const std::vector<Tensor> read = read_rows(images, {5, 1, 0});
  BOOST_TEST(read[0].at<uint8_t>({0, 2, 3, 4}) == 10);
  BOOST_TEST(read[0].at<uint8_t>({1, 2, 0, 0}) == 50);  // a gray image, in three channels
  BOOST_TEST(read[0].at<uint8_t>({2, 0, 0, 0}) == 60);
  BOOST_TEST(read[1].at<int64_t>({0}) == 2);
  BOOST_CHECK_THROW(read_rows(images, {6}), IndexError);
  BOOST_TEST((ImageFolder(folder.path(), {.channels = 1}).specs()[0].shape == Shape{6, 1, 4, 5}));
}

BOOST_AUTO_TEST_CASE(unequal_sizes) {
  image("a/1.png", 10);
  image("a/2.png", 20, {3, 8, 6});
  const ImageFolder images(folder.path());
  BOOST_CHECK_EXCEPTION(read_rows(images, {0, 1}), DataError,
                        says({"2.png", "[3, 8, 6]", "1.png", "[3, 4, 5]", "size", "image_folder_test.cpp"}));
  const ImageFolder resized(folder.path(), {.size = 7});
  BOOST_TEST((read_rows(resized, {0, 1})[0].shape() == Shape{2, 3, 7, 7}));
  BOOST_TEST(read_rows(resized, {1})[0].at<uint8_t>({0, 1, 6, 6}) == 20);
  using namespace data::transforms;
  const auto cropped = std::make_shared<ImageFolder>(
      folder.path(),
      data::ImageFolderOptions{.transform = {RandomCrop({4, 4}), RandomRotation(90), ToFloat()}});
  BOOST_TEST((cropped->specs()[0] == Spec{float32, {2, 3, 4, 4}}));
  const auto read = [&](int64_t epoch) {
    const Tensor pixels = read_rows(*cropped, {1, 0}, {epoch, 1})[0];
    return std::vector<float>(pixels.span<float>().begin(), pixels.span<float>().end());
  };
  BOOST_TEST((read(1) == read(1) && read(1) != read(2)));
  int64_t shown = 0;
  for (const auto& [x, y] : data::loader<2>(cropped, {.batch_size = 1}, {.workers = 2}))
    shown += x.shape()[0];
  BOOST_TEST(shown == 2);
}

BOOST_AUTO_TEST_CASE(images_are_the_same_with_any_number_of_workers) {
  seed(8);
  for (const std::string name : {"a/1.png", "a/2.png", "b/3.png", "b/4.png", "c/5.png"}) {
    fs::create_directories((folder / name).parent_path());
    data::write_image(folder / name, (rand({3, 7, 6}) * 255.0).value());
  }
  using namespace data::transforms;
  const auto images = std::make_shared<ImageFolder>(
      folder.path(), data::ImageFolderOptions{
                         .size = 6, .transform = {RandomCrop(5), RandomRotation(30), RandomVerticalFlip()}});
  const data::DistributorOptions options{.batch_size = 2, .shuffle = true, .seed = 4};
  const auto shown = [](const auto& batches) {
    std::vector<float> all;
    for (int epoch = 0; epoch < 2; ++epoch)
      for (const auto& [x, y] : batches)
        for (const Tensor& column : {x.to(float32), y.to(float32)})
          all.insert(all.end(), column.span<float>().begin(), column.span<float>().end());
    return all;
  };
  const std::vector<float> plain = shown(data::batches<2>(images, options));
  BOOST_TEST(plain.size() == 2 * 5 * (3 * 5 * 5 + 1));
  for (const int64_t workers : {1, 3})
    BOOST_TEST((shown(data::loader<2>(images, options, {.workers = workers})) == plain), workers);
  BOOST_TEST((shown(data::batches<2>(images, {.batch_size = 2, .shuffle = true, .seed = 5})) != plain));
}

BOOST_AUTO_TEST_CASE(transforms_that_return_nothing) {
  image("a/1.png", 10);
  image("a/2.png", 20);
  const auto nothing = [](const Tensor&) { return Tensor(); };
  BOOST_CHECK_EXCEPTION(ImageFolder(folder.path(), {.transform = {nothing}}), DataError,
                        says({"undefined", "1.png"}));
  const auto first_alone = [](const Tensor& x) { return x.at<uint8_t>({0, 0, 0}) == 10 ? x : Tensor(); };
  const ImageFolder images(folder.path(), {.transform = {first_alone}});
  const std::vector<int64_t> rows{0, 1};
  std::vector<Tensor> outputs{zeros({2, 3, 4, 5}, uint8), zeros({2}, int64)};
  BOOST_CHECK_EXCEPTION(images.read(rows, outputs), DataError, says({"undefined", "2.png"}));
}

BOOST_AUTO_TEST_CASE(damaged_and_large_images) {
  image("a/0.png", 10);
  const std::string rgb = from_hex(png_rgb);
  file("a/1.png", rgb.substr(0, rgb.size() - 12));
  file("a/2.jpg", "");
  file("a/3.png", "GIF89a");
  file("a/4.png", rgb);
  file("a/5.jpg", from_hex(jpeg_cmyk));
  file("a/6.png", from_hex(png_gray16));
  const ImageFolder images(folder.path(), {.size = 4});
  const auto refused = [&](const ImageFolder& of, int64_t row, const std::string& name,
                           const std::string& why) {
    BOOST_CHECK_EXCEPTION(read_rows(of, {row}), FileError, says({name, why, "image_folder_test.cpp"}));
  };
  refused(images, 1, "1.png", "ends too early");
  refused(images, 2, "2.jpg", "neither");
  refused(images, 3, "3.png", "neither");
  refused(images, 5, "5.jpg", "CMYK");
  BOOST_CHECK_EXCEPTION(read_rows(images, {6}), DataError, says({"6.png", "16 bits"}));
  BOOST_CHECK_NO_THROW(read_rows(images, {4}));
  for (const auto& [x, y] : data::batches<2>(std::make_shared<ImageFolder>(images), {.batch_size = 1})) {
    BOOST_TEST(x.shape()[0] == 1);
    break;
  }
  BOOST_CHECK_EXCEPTION(ImageFolder(folder.path(), {.max_pixels = 19}), FileError,
                        says({"0.png", "max_pixels"}));
  std::string bomb = rgb;  // a header that claims 2^31 - 1 rows
  bomb.replace(16, 4, from_hex("7fffffff"));
  file("b/bomb.png", bomb);
  BOOST_CHECK_THROW(read_rows(ImageFolder(folder.path(), {.size = 4}), {7}), FileError);
}

BOOST_AUTO_TEST_CASE(folders_that_are_none) {
  BOOST_CHECK_EXCEPTION(ImageFolder(folder.path()), FileError, says({"no folders", "image_folder_test.cpp"}));
  BOOST_CHECK_EXCEPTION(ImageFolder(folder / "none"), FileError, says({"none", "is no folder"}));
  image("a/1.png", 1);
  BOOST_CHECK_EXCEPTION(ImageFolder(folder / "a/1.png"), FileError, says({"1.png", "is no folder"}));
  BOOST_CHECK_EXCEPTION(ImageFolder(folder / "a"), FileError, says({"no folders"}));
  BOOST_CHECK_EXCEPTION(ImageFolder(folder.path(), {.channels = 0}), DataError, says({"0 channels"}));
  fs::create_directories(folder / "b/within");
  BOOST_CHECK_EXCEPTION(ImageFolder(folder.path()), FileError, says({"b has no images"}));
  image("b/within/2.png", 2);
  BOOST_TEST(ImageFolder(folder.path()).rows() == 2);
  fs::create_directory_symlink(folder / "a", folder / "b/link");
  BOOST_TEST(ImageFolder(folder.path()).rows() == 3);
  fs::create_directory_symlink(folder / "b", folder / "b/within/back");
  BOOST_CHECK_EXCEPTION(ImageFolder(folder.path()), FileError, says({"back", "it lies in"}));
}

BOOST_AUTO_TEST_SUITE_END()
